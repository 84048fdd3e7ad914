"""What a page of a report shows: the rows worth a line, and the words around them.

Owns choices that text, Markdown and HTML share, so that they never tell different stories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._headline import milliseconds, standing_out
from tailscope_analyzer._quality import percentile_name

if TYPE_CHECKING:
    from tailscope_analyzer._report import Report, StageRow

MOST_ROWS: Final = 12
LEAST_SHARE: Final = 0.005
"""Rows of a smaller share of the excess are summed up in one line."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Hold the rows to show, what the others add up to, and how many they are."""

    rows: tuple[StageRow, ...]
    others: int
    others_ms: float


def shown_rows(report: Report) -> Shown:
    """Choose the rows that are worth a line: the largest, and any that takes time away."""
    large = [row for row in report.stages if abs(row.share) >= LEAST_SHARE]
    rows = tuple(large[:MOST_ROWS])
    left = [row for row in report.stages if row not in rows]
    return Shown(rows, len(left), sum(row.excess_ms for row in left))


def latencies(report: Report) -> list[tuple[str, str]]:
    """Return names and values of the sample quantiles."""
    values = report.latency_ms
    named = (
        ("p50", values.p50),
        ("p90", values.p90),
        ("p95", values.p95),
        ("p99", values.p99),
        ("p99.9", values.p999),
        ("max", values.max),
        ("mean", values.mean),
    )
    return [(name, "-" if value is None else milliseconds(value)) for name, value in named]


def window_line(report: Report) -> str:
    """Say which requests the report is about."""
    window = report.window
    chosen = [
        f"service {window.service}" if window.service else "",
        f"operation {window.operation}" if window.operation else "",
        f"where {window.where}" if window.where else "",
        f"from {_minute(window.start)} to {_minute(window.end)} UTC" if window.start and window.end else "",
    ]
    return ", ".join([f"{report.requests:,} requests", *(part for part in chosen if part)])


def baseline_line(report: Report) -> str:
    """Say what the excess is measured against."""
    if report.baseline.ms is None or report.tail_ms is None:
        return ""
    kind = "median" if report.baseline.kind == "p50" else "mean of the faster half"
    because = f" ({report.baseline.reason})" if report.baseline.kind == "faster_half" else ""
    return (
        f"{percentile_name(report.percentile)} {milliseconds(report.tail_ms)} = typical "
        f"{milliseconds(report.baseline.ms)} + excess {milliseconds(report.excess_ms)}. "
        f"Typical is the {kind}{because}."
    )


def quality_line(report: Report) -> str:
    """Say how far the numbers can be trusted."""
    quality = report.quality
    complete = "" if quality.complete_share is None else f"{quality.complete_share:.1%} of traces complete"
    orphans = f"{quality.orphans:,} orphan spans" if quality.orphans else ""
    said = "" if quality.verdict == "ok" else quality.verdict
    return "; ".join(part for part in (complete, orphans, said) if part)


def is_marked(row: StageRow, report: Report) -> bool:
    """Tell whether the row is one that the headline may name."""
    return row in standing_out(report)


def signed(value: float) -> str:
    """Write a difference with its sign."""
    return ("+" if value >= 0 else "-") + milliseconds(abs(value))


def interval(row: StageRow) -> str:
    """Write the 95 % interval of a row's excess."""
    return f"{signed(row.ci95_ms[0])} … {signed(row.ci95_ms[1])}"


def _minute(time: str) -> str:
    return time[:19].replace("T", " ")
