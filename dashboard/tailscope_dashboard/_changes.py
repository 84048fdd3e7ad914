"""Shapes of the Compare page: what moved, as tables and bars, from the analyzer's comparison.

Owns which rows are worth a bar and the words for how certain a change is. Computes nothing but sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from tailscope_analyzer import Comparison

MOST_BARS: Final = 12
LEAST_MS_SHARE: Final = 0.002
"""Of the largest change: a bar that is shorter cannot be seen."""

CERTAIN: Final = "certain"
SMALL: Final = "certain, but small"
CHANCE: Final = "within chance"

BEYOND_CHANCE: Final = 0.01
"""The q up to which the analyzer calls a change certain; a claim takes 5 % of the baseline's mean too."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict in one word, with a colour and an icon that say the same."""

    word: str
    colour: Literal["red", "green", "gray", "orange"]
    icon: str


def answer(comparison: Comparison) -> Answer:
    """Return the verdict in one word."""
    if not comparison.baseline.requests or not comparison.candidate.requests:
        return Answer("Nothing to compare", "orange", ":material/filter_alt_off:")
    if comparison.significant and comparison.improved:
        return Answer("Slower here, faster there", "orange", ":material/swap_vert:")
    if comparison.significant:
        return Answer("Slower", "red", ":material/trending_up:")
    if comparison.improved:
        return Answer("Faster", "green", ":material/trending_down:")
    return Answer("No significant change", "gray", ":material/trending_flat:")


def explanation(comparison: Comparison) -> str:
    """Return how the change of the mean splits, in a sentence."""
    against = "" if comparison.against == "mean" else " (held against typical requests of the baseline)"
    return (
        f"Mean {figures.milliseconds(comparison.excess_ms, signed=True)}{against} = "
        f"{figures.milliseconds(comparison.like_for_like_ms, signed=True)} for requests of the same kind, "
        f"{figures.milliseconds(comparison.mix_ms, signed=True)} because other kinds are asked for."
    )


def latency_table(comparison: Comparison) -> pl.DataFrame:
    """Return how each number of the latency moved, with its interval."""
    rows = [
        {
            "number": row.name,
            "baseline_ms": row.baseline_ms,
            "candidate_ms": row.candidate_ms,
            "excess_ms": row.excess_ms,
            "low_ms": row.ci95_ms[0] if row.ci95_ms else None,
            "high_ms": row.ci95_ms[1] if row.ci95_ms else None,
            "certainty": figures.MISSING if row.ci95_ms is None else CERTAIN if row.significant else CHANCE,
        }
        for row in comparison.latency
        if row.baseline_ms is not None or row.candidate_ms is not None
    ]
    number = pl.Float64()
    schema = {"number": pl.String(), "baseline_ms": number, "candidate_ms": number, "excess_ms": number}
    return pl.DataFrame(rows, schema=schema | {"low_ms": number, "high_ms": number, "certainty": pl.String()})


def stage_table(comparison: Comparison) -> pl.DataFrame:
    """Return a row per stage, the largest change in either direction first."""
    rows: list[dict[str, Any]] = [
        {
            "name": _named(row.service, row.stage, row.category),
            "stage": row.stage,
            "baseline_ms": row.baseline_ms,
            "candidate_ms": row.candidate_ms,
            "excess_ms": row.excess_ms,
            "low_ms": row.ci95_ms[0],
            "high_ms": row.ci95_ms[1],
            "share": row.share,
            "calls_ms": row.calls_ms,
            "tail_ms": row.tail_ms,
            "callees": ", ".join(row.callees),
            "q_value": row.q_value,
            "certainty": _certainty(significant=row.significant, q_value=row.q_value),
        }
        for row in comparison.stages
    ]
    return _largest_first(rows)


def service_table(comparison: Comparison) -> pl.DataFrame:
    """Return a row per service, in the analyzer's order."""
    return pl.DataFrame(
        [
            {
                "service": row.service,
                "excess_ms": row.excess_ms,
                "low_ms": row.ci95_ms[0],
                "high_ms": row.ci95_ms[1],
                "share": row.share,
                "own_ms": row.own_ms,
                "egress_ms": row.egress_ms,
                "ingress_ms": row.ingress_ms,
                "calls_ms": row.calls_ms,
                "q_value": row.q_value,
                "certainty": _certainty(significant=row.significant, q_value=row.q_value),
            }
            for row in comparison.services
        ]
    )


def edge_table(comparison: Comparison) -> pl.DataFrame:
    """Return a row per caller and callee, the largest change in either direction first."""
    rows: list[dict[str, Any]] = [
        {
            "call": f"{row.caller} → {row.callee}",
            "excess_ms": row.excess_ms,
            "low_ms": row.ci95_ms[0],
            "high_ms": row.ci95_ms[1],
            "caller_ms": row.caller_ms,
            "callee_ms": row.callee_ms,
            "q_value": row.q_value,
            "certainty": "sides not told apart"
            if row.tied
            else _certainty(significant=row.significant, q_value=row.q_value),
        }
        for row in comparison.edges
    ]
    return _largest_first(rows)


def call_table(comparison: Comparison) -> pl.DataFrame:
    """Return what is done more or less often in a request."""
    return pl.DataFrame(
        [
            {
                "service": row.service,
                "operation": row.operation,
                "category": row.category,
                "baseline_calls": row.baseline_calls,
                "candidate_calls": row.candidate_calls,
                "calls_ms": row.calls_ms,
                "slower_ms": row.slower_ms,
            }
            for row in comparison.calls
        ]
    )


def mix_table(comparison: Comparison) -> pl.DataFrame:
    """Return the kinds of requests and what their shares moved."""
    return pl.DataFrame(
        [
            {
                "kind": " · ".join(part for part in (row.operation, row.model, row.input_tokens) if part),
                "baseline_share": row.baseline_share,
                "candidate_share": row.candidate_share,
                "mix_ms": row.mix_ms,
            }
            for row in comparison.mix
        ]
    )


def bars(stages: pl.DataFrame) -> pl.DataFrame:
    """Return the stages whose change can be seen, with what their bars say."""
    size = pl.col("excess_ms").abs()
    seen = stages.filter(size >= LEAST_MS_SHARE * size.max()).filter(size > 0).head(MOST_BARS)
    text = [
        f"{figures.milliseconds(row['excess_ms'], signed=True)}, {row['certainty']}"
        for row in seen.iter_rows(named=True)
    ]
    interval = [figures.interval(row["low_ms"], row["high_ms"]) for row in seen.iter_rows(named=True)]
    colour = [palette.of_stage(stage) for stage in seen["stage"]]
    return seen.with_columns(
        pl.Series("text", text, dtype=pl.String),
        pl.Series("interval", interval, dtype=pl.String),
        pl.Series("colour", colour, dtype=pl.String),
        pl.lit(0.0).alias("zero"),
        pl.max_horizontal("excess_ms", "high_ms", pl.lit(0.0)).alias("right_ms"),
    )


def _named(service: str, stage: str, category: str) -> str:
    return f"{service} {stage}" if category == "self" else f"{service} {stage} ({category})"


def _certainty(*, significant: bool, q_value: float) -> str:
    return CERTAIN if significant else SMALL if q_value <= BEYOND_CHANCE else CHANCE


def _largest_first(rows: list[dict[str, Any]]) -> pl.DataFrame:
    ordered = sorted(rows, key=lambda row: -abs(row["excess_ms"]))
    return pl.DataFrame(ordered, infer_schema_length=None)
