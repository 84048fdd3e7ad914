"""What moved, as the Compare page shows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailscope_analyzer import Comparison
from tailscope_analyzer._compare._comparison import LatencyShift, Side, StageShift
from tailscope_analyzer._report import Latency
from tailscope_dashboard import _change_charts as drawing
from tailscope_dashboard import _changes as changes
from tailscope_dashboard import _figures as figures

UNKNOWN = Latency(*[None] * 7)
NOTHING = Side(requests=100, latency_ms=UNKNOWN)
SAME = Comparison(
    version=1, percentile=0.99, baseline=NOTHING, candidate=NOTHING, significant=False,
    verdict="No significant change.",
    excess_ms=20.25, ci95_ms=(18.0, 22.0), mix_ms=0.25, like_for_like_ms=20.0,
)  # fmt: skip


def stage(name: str, excess_ms: float, *, significant: bool = False, q: float = 0.5) -> StageShift:
    return StageShift(
        service="svc",
        stage=name,
        category="self",
        baseline_ms=10.0,
        candidate_ms=10.0 + excess_ms,
        excess_ms=excess_ms,
        share=0.5,
        ci95_ms=(excess_ms - 2, excess_ms + 2),
        q_value=q,
        significant=significant,
        slower_ms=excess_ms,
    )


@pytest.mark.parametrize(
    ("comparison", "word"),
    [
        (SAME, "No significant change"),
        (replace(SAME, significant=True), "Slower"),
        (replace(SAME, improved=True), "Faster"),
        (replace(SAME, significant=True, improved=True), "Slower here, faster there"),
        (replace(SAME, candidate=Side(0, UNKNOWN)), "Nothing to compare"),
    ],
)
def test_the_verdict_is_one_word(comparison: Comparison, word: str) -> None:
    assert changes.answer(comparison).word == word


def test_the_change_of_the_mean_is_split_in_a_sentence() -> None:
    assert changes.explanation(SAME) == (
        "Mean +20.2 ms = +20.0 ms for requests of the same kind, +0.250 ms because other kinds are asked for."
    )


def test_stages_are_in_order_of_their_change_with_how_certain_it_is() -> None:
    rows = changes.stage_table(
        replace(
            SAME,
            stages=(
                stage("queue", 3.0, q=0.001),
                stage("auth", 0.1),
                stage("inference", -9.0, significant=True),
            ),
        )
    )

    assert rows.select("name", "excess_ms", "certainty").rows() == [
        ("svc inference", -9.0, "certain"),
        ("svc queue", 3.0, "certain, but small"),
        ("svc auth", 0.1, "within chance"),
    ]


def test_a_bar_says_its_change_and_one_too_short_is_left_out() -> None:
    rows = changes.stage_table(
        replace(SAME, stages=(stage("queue", 30.0), stage("auth", 0.05), stage("other", 0.0)))
    )

    bars = changes.bars(rows)

    assert bars.select("text", "interval", "colour").rows() == [
        ("+30.0 ms, within chance", "+28.0 ms to +32.0 ms", "#cc6d1b")
    ]
    assert drawing.moved(bars, theme="light").to_dict()["layer"]


def test_latency_without_an_interval_is_not_judged() -> None:
    shifts = (
        LatencyShift("p50", 10.0, 12.0, 2.0, (1.0, 3.0), significant=True),
        LatencyShift("p99", 10.0, None, None, None, significant=False),
        LatencyShift("p999", None, None, None, None, significant=False),
    )

    table = changes.latency_table(replace(SAME, latency=shifts))

    assert table.select("number", "high_ms", "certainty").rows() == [
        ("p50", 3.0, "certain"),
        ("p99", None, figures.MISSING),
    ]


def test_a_comparison_without_rows_makes_empty_tables() -> None:
    tables = (
        changes.stage_table,
        changes.service_table,
        changes.edge_table,
        changes.call_table,
        changes.mix_table,
    )

    assert all(table(SAME).is_empty() for table in tables)
