"""Predictions for a terminal: a table of percentiles now and under each change.

Owns its layout; numbers are never cut, columns that do not fit are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._terminal import LEAST_WIDTH, Column, drawn, fitted, folded, that_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from tailscope_analyzer._whatif._answer import WhatIf, WhatIfRow


def whatif_text(answer: WhatIf, *, width: int = 100, colour: bool = False) -> str:
    """Draw the predictions `width` columns wide."""
    width = max(width, LEAST_WIDTH)
    parts: list[RenderableType] = [Text(folded(_sentence(answer), width), "bold"), Text()]
    if answer.rows:
        parts += [_table(answer, width), Text()]
    parts += [Text(folded(line, width)) for line in (*answer.notes, _queue_line(answer)) if line]
    return drawn(*parts, width=width, colour=colour)


def _sentence(answer: WhatIf) -> str:
    """Say what the last row, all changes together, does to p99; or why nothing can be said."""
    if not answer.rows:
        return "No requests match."
    last = answer.rows[-1]
    if answer.p99_ms is None or last.p99_ms is None or last.saved_ms is None:
        return f"No answer for p99: {answer.requests:,} requests are too few, it needs 300."
    moved = f"{milliseconds(answer.p99_ms)} to {milliseconds(last.p99_ms)}"
    sure = f" (95 % interval {_interval(last.ci95_ms)})" if last.ci95_ms else ""
    return (
        f"With {readable(last.change)}, p99 would go from {moved}{sure}, over {answer.requests:,} requests."
    )


def _table(answer: WhatIf, width: int) -> Table:
    rows = answer.rows
    names = ["now", *(readable(row.change) for row in rows)]
    percentiles = [
        _numbers("p50", [answer.p50_ms, *(row.p50_ms for row in rows)]),
        _numbers("p95", [answer.p95_ms, *(row.p95_ms for row in rows)]),
        _numbers("p99", [answer.p99_ms, *(row.p99_ms for row in rows)]),
    ]
    between = _texts("95 % interval", ["", *(_interval(row.ci95_ms) for row in rows)])
    saved = _texts("p99 saved", ["", *(_saved(row) for row in rows)])
    direct = _numbers("queues as now", [None, *(row.direct_p99_ms for row in rows)])
    groups: tuple[list[Column], ...] = ([percentiles[2]], percentiles[:2], [saved], [between])
    if any(row.queues == "replayed" for row in rows):
        groups = (*groups, [direct])
    chosen = that_fit(groups, width - min(max(len(name) for name in names), width // 3))
    order = (*percentiles, between, saved, direct)
    return fitted("change", names, [column for column in order if column in chosen], width)


def _queue_line(answer: WhatIf) -> str:
    if not any(row.queues == "replayed" for row in answer.rows):
        return ""
    return "Queues were served again; 'queues as now' is the p99 without that relief."


def _saved(row: WhatIfRow) -> str:
    if row.saved_ms is None or row.saved_ci95_ms is None:
        return "-"
    return f"{milliseconds(row.saved_ms)} ({_interval(row.saved_ci95_ms)})"


def _interval(pair: tuple[float, float] | None) -> str:
    return f"{milliseconds(pair[0])} … {milliseconds(pair[1])}" if pair else "-"


def _numbers(title: str, values: Sequence[float | None]) -> Column:
    return _texts(title, ["-" if value is None else milliseconds(value) for value in values])


def _texts(title: str, values: Sequence[str]) -> Column:
    return Column(title, [Text(value) for value in values])
