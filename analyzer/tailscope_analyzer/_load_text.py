"""The load curve for a terminal: what it says, Little's law, and latency by concurrency.

Owns its layout; numbers are never cut, columns that do not fit are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._terminal import LEAST_WIDTH, Column, bar, drawn, fitted, folded, that_fit

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from tailscope_analyzer._load import LoadCurve

BAR = 16


def load_text(curve: LoadCurve, *, width: int = 100, colour: bool = False) -> str:
    """Draw the curve `width` columns wide."""
    width = max(width, LEAST_WIDTH)
    parts: list[RenderableType] = [Text(folded(curve.verdict, width), "bold"), Text()]
    little = curve.little
    if little is not None:
        line = (
            f"{little.throughput_per_s:,.1f} requests a second of {milliseconds(little.mean_ms)} each: "
            f"{little.concurrency:.1f} in flight on average, {curve.max_concurrency} at most."
        )
        parts += [Text(folded(line, width)), Text()]
    if curve.points:
        parts.append(_table(curve, width))
    return drawn(*parts, width=width, colour=colour)


def _table(curve: LoadCurve, width: int) -> Table:
    points = curve.points
    most = max(point.mean_ms for point in points)
    requests = Column("requests", [Text(f"{point.requests:,}") for point in points])
    mean = Column("mean", [Text(milliseconds(point.mean_ms)) for point in points])
    slow = Column("p99", [Text(milliseconds(point.p99_ms)) for point in points])
    bars = Column(
        "", [Text(bar(point.mean_ms / most if most else 0, BAR).ljust(BAR)) for point in points], False
    )
    chosen = that_fit(([mean], [slow], [requests], [bars]), width - len("in flight"))
    order = [column for column in (requests, mean, slow, bars) if column in chosen]
    return fitted("in flight", [f"{point.concurrency:.1f}" for point in points], order, width)
