"""The bridge from the typical request to the tail: one step per stage, from the report's split.

Owns which steps are shown and which are summed as 'smaller ones', and where each begins and ends. The parts
sum to the report's `excess_ms`; nothing is estimated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import polars as pl
import polars.selectors as cs

from tailscope.conventions import STAGES
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer import Report

STEPS_SHOWN: Final = 9
LEAST_STEPS: Final = 3
WORTH_A_BAR: Final = 0.005
"""Part of the excess from which a step has its own bar."""

WIDE_ENOUGH: Final = 0.07
"""Part of the longer bar from which a stage's name fits into it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One bar of the bridge, in ms: a total stands on the ground, a change hangs between two levels."""

    label: str
    kind: Literal["total", "change", "rest"]
    start_ms: float
    end_ms: float
    stage: str | None = None
    share: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None

    @property
    def change_ms(self) -> float:
        """How far the bar goes."""
        return self.end_ms - self.start_ms

    @property
    def low_change_ms(self) -> float | None:
        """The lower end of the 95 % interval of the change."""
        return None if self.low_ms is None else self.low_ms - self.start_ms

    @property
    def high_change_ms(self) -> float | None:
        """The upper end of the 95 % interval of the change."""
        return None if self.high_ms is None else self.high_ms - self.start_ms


def bridge(report: Report) -> list[Step]:
    """Lay out the steps from the typical request to the tail; empty where the report has no split."""
    if report.baseline.ms is None or not report.stages:
        return []
    by_size = sorted(report.stages, key=lambda row: -abs(row.excess_ms))
    cut = _steps_worth_a_bar([row.excess_ms for row in by_size], report.excess_ms)
    several = len({row.service for row in report.stages}) > 1
    level = report.baseline.ms
    steps = [Step(baseline_label(report), "total", 0.0, level)]
    for row in sorted(by_size[:cut], key=lambda row: -row.excess_ms):
        low, high = row.ci95_ms
        end = level + row.excess_ms
        label = name_of(row.service if several else None, row.stage, row.category)
        steps.append(Step(label, "change", level, end, row.stage, row.share, level + low, level + high))
        level = end
    if rest := by_size[cut:]:
        end = level + sum(row.excess_ms for row in rest)
        share = sum(row.share for row in rest)
        steps.append(Step(f"{len(rest)} smaller ones", "rest", level, end, share=share))
        level = end
    return [*steps, Step(f"{tail_label(report)} (smoothed)", "total", 0.0, level)]


def _steps_worth_a_bar(by_size_ms: Sequence[float], excess_ms: float) -> int:
    large = sum(abs(ms) >= abs(excess_ms) * WORTH_A_BAR for ms in by_size_ms)
    cut = min(max(large, LEAST_STEPS), STEPS_SHOWN)
    # A list that is one row too long shows that row rather than "1 smaller ones".
    return len(by_size_ms) if len(by_size_ms) <= cut + 1 else cut


def name_of(service: str | None, stage: str, category: str) -> str:
    """Name a row of the split: service, stage and, where it adds something, the category."""
    part = stage if category in ("self", stage) else f"{stage} ({category})"
    return part if service is None else f"{service} · {part}"


def baseline_label(report: Report) -> str:
    """Name the typical request."""
    return "typical: faster half" if report.baseline.kind == "faster_half" else "typical: p50"


def tail_label(report: Report) -> str:
    """Name the percentile of the report: p99, p99.9."""
    return f"p{report.percentile * 100:.10g}"


def explanation(report: Report) -> str:
    """Say what the two ends of the bridge are."""
    tail = tail_label(report)
    reason = f" ({report.baseline.reason})" if report.baseline.reason else ""
    latency = report.latency_ms
    known = {0.9: latency.p90, 0.95: latency.p95, 0.99: latency.p99, 0.999: latency.p999}
    sample = known.get(report.percentile)
    own = f"The sample's own {tail} is {figures.milliseconds(sample)}. " if sample is not None else ""
    return (
        f"The ends are smoothed percentiles: typical {figures.milliseconds(report.baseline.ms)}{reason}, "
        f"{tail} {figures.milliseconds(report.tail_ms)}. {own}The steps sum exactly to the difference."
    )


def composition(report: Report) -> pl.DataFrame:
    """Lay out the typical request and the tail as stages in a row, in the order of a request."""
    typical: dict[str, float] = {}
    tail: dict[str, float] = {}
    for row in report.stages:
        typical[row.stage] = typical.get(row.stage, 0.0) + max(row.typical_ms, 0.0)
        tail[row.stage] = tail.get(row.stage, 0.0) + max(row.tail_ms, 0.0)
    wide = WIDE_ENOUGH * max(sum(typical.values()), sum(tail.values()))
    rows = [*_in_a_row("typical", typical, wide), *_in_a_row("tail", tail, wide)]
    return pl.DataFrame(rows, infer_schema_length=None)


def split_table(report: Report) -> pl.DataFrame:
    """Return the split as a table, the largest excess first."""
    rows = [
        {
            "service": row.service,
            "stage": row.stage,
            "category": row.category,
            "typical_ms": row.typical_ms,
            "tail_ms": row.tail_ms,
            "excess_ms": row.excess_ms,
            "share": row.share,
            "low_ms": row.ci95_ms[0],
            "high_ms": row.ci95_ms[1],
        }
        for row in report.stages
    ]
    return _as_shown(pl.DataFrame(rows, infer_schema_length=None).sort("excess_ms", descending=True))


def service_table(report: Report) -> pl.DataFrame:
    """Return the excess of each service."""
    rows = [
        {
            "service": row.service,
            "excess_ms": row.excess_ms,
            "share": row.share,
            "low_ms": row.ci95_ms[0],
            "high_ms": row.ci95_ms[1],
        }
        for row in report.services
    ]
    return _as_shown(pl.DataFrame(rows, infer_schema_length=None))


def edge_table(report: Report) -> pl.DataFrame:
    """Return the excess of each call: between two services, or to something that a service depends on."""
    rows = [
        {"call": f"{row.caller} → {row.callee}", "excess_ms": row.excess_ms, "share": row.share}
        for row in report.edges
    ]
    return _as_shown(pl.DataFrame(rows, infer_schema_length=None))


def _as_shown(table: pl.DataFrame) -> pl.DataFrame:
    # Rounded to the digits of the columns, 1.23 ms and 45.67 %; the sum makes 0.0 of -0.0.
    return table.with_columns(
        cs.ends_with("_ms").round(2) + 0.0, cs.by_name("share", require_all=False).round(4) + 0.0
    )


def _in_a_row(request: str, sums: dict[str, float], wide_ms: float) -> list[dict[str, object]]:
    order = {name: place for place, name in enumerate(STAGES)}
    rows: list[dict[str, object]] = []
    level = 0.0
    for stage in sorted(sums, key=lambda name: order.get(name, len(order))):
        end = level + sums[stage]
        rows.append(
            {
                "request": request,
                "label": stage,
                "start_ms": level,
                "end_ms": end,
                "ms": sums[stage],
                "colour": palette.of_stage(stage),
                "wide": sums[stage] > wide_ms,
            }
        )
        level = end
    return rows
