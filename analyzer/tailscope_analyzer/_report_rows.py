"""What a page of a report shows: the rows worth a line, and the words around them.

Owns choices that text, Markdown and HTML share, so that they never tell different stories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._findings import standing_out
from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._quality import percentile_name

if TYPE_CHECKING:
    from tailscope_analyzer._report import EdgeRow, Report, StageRow

NOTHING: Final = milliseconds(0.0)
MOST_OF_A_CONDITION: Final = 200
MOST_ROWS: Final = 12
MOST_EDGES: Final = 10
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


def shown_edges(report: Report) -> tuple[EdgeRow, ...]:
    """Choose the calls that are worth a line."""
    return tuple(row for row in report.edges if abs(row.share) >= LEAST_SHARE)[:MOST_EDGES]


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
        f"service {readable(window.service)}" if window.service else "",
        f"operation {readable(window.operation)}" if window.operation else "",
        f"where {readable(window.where, MOST_OF_A_CONDITION)}" if window.where else "",
        f"from {_between(window.start, window.end)} UTC" if window.start and window.end else "",
    ]
    requests = "1 request" if report.requests == 1 else f"{report.requests:,} requests"
    return ", ".join([requests + _sampled(report), *(part for part in chosen if part)])


def _sampled(report: Report) -> str:
    """Say how many of the requests are stored, and how much they tell; empty where nothing was sampled."""
    quality = report.quality
    if not quality.sampled or quality.stored is None or quality.effective is None:
        return ""
    name = percentile_name(report.percentile)
    return (
        f" (sampled: {quality.stored:,} stored, which tell as much about {name} as {quality.effective:,.0f} "
        "unsampled ones)"
    )


def baseline_line(report: Report) -> str:
    """Say what the excess is measured against."""
    if report.baseline.ms is None or report.tail_ms is None:
        return ""
    kind = "median" if report.baseline.kind == "p50" else "mean of the faster half"
    because = f" ({report.baseline.reason})" if report.baseline.kind == "faster_half" else ""
    return (
        f"Smoothed {percentile_name(report.percentile)} {milliseconds(report.tail_ms)} = typical "
        f"{milliseconds(report.baseline.ms)} + excess {milliseconds(report.excess_ms)}. "
        f"Typical is the {kind}{because}."
    )


def quality_line(report: Report) -> str:
    """Say how far the numbers can be trusted."""
    quality = report.quality
    complete = "" if quality.complete_share is None else f"{quality.complete_share:.1%} of traces complete"
    orphans = f"{quality.orphans:,} orphan spans" if quality.orphans else ""
    said = "" if quality.verdict == "ok" else quality.verdict
    return "; ".join(part for part in (complete, orphans, said, _intervals(report)) if part)


def _intervals(report: Report) -> str:
    """Give the intervals of the sample quantiles where requests were sampled; empty elsewhere."""
    found = report.latency_ci95_ms
    named = (("p50", found.p50), ("p90", found.p90), ("p95", found.p95), ("p99", found.p99))
    told = [f"{name} {milliseconds(ci[0])} to {milliseconds(ci[1])}" for name, ci in named if ci is not None]
    return f"95 % intervals: {', '.join(told)}" if report.quality.sampled and told else ""


def is_marked(row: StageRow, report: Report) -> bool:
    """Tell whether the row is one that the headline may name."""
    return any(row in found.rows and row.excess_ms > 0 for found in standing_out(report))


def signed(value: float) -> str:
    """Write a difference with its sign; one that rounds to nothing is `+0.00 ms`."""
    size = milliseconds(abs(value))
    return ("-" if value < 0 and size != NOTHING else "+") + size


def percent(share: float) -> str:
    """Write a share; one that rounds to nothing has no sign."""
    return f"{round(share * 100) + 0:d}%"


def more_rows(shown: Shown) -> str:
    """Say what the rows that are not shown add up to; empty when all are shown."""
    if not shown.others:
        return ""
    rows = "1 smaller row adds" if shown.others == 1 else f"{shown.others} smaller rows together"
    return f"{rows} {signed(shown.others_ms)}"


def interval(row: StageRow) -> str:
    """Write the 95 % interval of a row's excess."""
    return f"{signed(row.ci95_ms[0])} … {signed(row.ci95_ms[1])}"


def _between(start: str, end: str) -> str:
    """Write two times, in parts of a second where whole ones would make them look the same."""
    same = next((cut for cut in (19, 23) if start[:cut] != end[:cut]), 26)
    return " to ".join(time[:same].replace("T", " ") for time in (start.rstrip("Z"), end.rstrip("Z")))
