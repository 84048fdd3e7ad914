"""What the pages make of a report's rows: targets, causes, attributes, changes, predictions, percentiles."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_dashboard import _causes as causes
from tailscope_dashboard import _effects as effects
from tailscope_dashboard import _listing as listing
from tailscope_dashboard import _moments as moments
from tailscope_dashboard import _percentile_split as percentile_split
from tailscope_dashboard import _targets as targets
from tailscope_dashboard import _whatif as whatif
from tests.dashboard.reports import report, stage

CAUSE: dict[str, Any] = {
    "cause": "gc_pause",
    "service": "ranker",
    "stage": "inference",
    "share_of_tail": 0.5,
    "excess_ms": 40.0,
    "confidence": "likely",
    "summary": "<b>ranker</b> collects garbage.",
    "evidence": [{"text": "seen", "sql": "select 1"}],
    "fix": [
        {"text": "freeze", "source": "https://example.org/1"},
        {"text": "wait", "source": "guide A"},
        {"text": "click", "source": "javascript:alert(1)"},
    ],
    "traces": ["ab" * 16],
}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("voice", 100.0),
        ("250", 250.0),
        ("80 ms", 80.0),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("", None),
    ],
)
def test_target_is_a_preset_or_a_number_of_milliseconds(text: str, ms: float | None) -> None:
    assert targets.target_ms(text) == ms


@given(st.floats(0.001, 1e6))
def test_target_survives_the_address(ms: float) -> None:
    written = targets.target_text(ms)

    assert targets.target_ms(written) == pytest.approx(ms, rel=1e-5)


def test_target_is_judged_in_words_and_colour() -> None:
    over, within = targets.judge(812.0, 200.0), targets.judge(200.0, 200.0)

    assert over is not None
    assert within is not None
    assert (over.word, over.colour) == ("612.0 ms over target", "red")
    assert (within.word, within.colour) == ("meets the target", "green")
    assert targets.judge(None, 200.0) is None


def test_cause_is_named_in_words_and_only_a_page_is_a_link() -> None:
    found = causes.causes(report(causes=[CAUSE]))[0]

    assert (found.title, found.where, found.confidence.word) == ("GC pause", "ranker · inference", "Likely")
    assert [fix.link for fix in found.advice] == ["https://example.org/1", None, None]
    assert found.interval_ms is None
    assert found.requests == 1


def test_cause_of_a_newer_analyzer_is_shown_as_possible() -> None:
    found = causes.causes(report(causes=[CAUSE | {"cause": "cosmic_ray", "confidence": "certain"}]))[0]

    assert (found.title, found.confidence.word) == ("Cosmic ray", "Possible")


def test_attributes_come_largest_first_with_their_aliases() -> None:
    rows: list[dict[str, Any]] = [
        {"attribute": "tier", "value": "free", "requests": 30, "excess_ms": 5.0, "share_of_tail": 0.1,
         "q_value": 0.01, "aliases": ["a = 1", "b = 2", "c = 3", "d = 4"]},
        {"attribute": "tokens & tier", "value": ">= 12 & pro", "requests": 9, "excess_ms": 50.0,
         "share_of_tail": 0.6, "q_value": 0.001, "aliases": [], "ci95_ms": [40.0, 60.0]},
    ]  # fmt: skip

    table = effects.attribute_table(report(attributes=rows))

    assert table["label"].to_list() == ["tokens >= 12 and tier = pro", "tier = free"]
    assert table["aliases"].to_list() == [None, "a = 1, b = 2, c = 3 and 1 more"]
    assert table["low_ms"].to_list() == [40.0, None]
    assert effects.effect_rows(table)["text"].to_list() == ["+50.0 ms (60 %)", "+5.00 ms (10 %)"]


def test_report_without_attributes_has_an_empty_table() -> None:
    assert effects.attribute_table(report()).is_empty()


def test_sliders_are_for_the_large_kinds_of_time_largest_first() -> None:
    made = report(
        stage("auth", 2, 3), stage("queue", 1, 90), stage("inference", 20, 25), stage("serialize", 1, 1)
    )

    assert [target.name for target in whatif.targets(made)] == ["queue", "inference", "auth"]


def test_kinds_of_time_of_several_services_name_the_service() -> None:
    made = report(stage("queue", 1, 90), stage("queue", 1, 30, service="model"))

    assert [target.name for target in whatif.targets(made)] == ["ranker queue", "model queue"]


@given(st.dictionaries(st.sampled_from(["queue", "inference", "ranker auth"]), st.integers(0, 200)))
def test_changes_survive_the_address(percents: dict[str, int]) -> None:
    known = [whatif.Target(name, name, 1.0, 2.0) for name in ("queue", "inference", "ranker auth")]

    read = whatif.changes_of(whatif.changes_text(percents), None, known)

    assert read.percents == {name: percent for name, percent in percents.items() if percent != 100}


def test_changes_that_mean_nothing_here_are_left_out() -> None:
    known = [whatif.Target("queue", "queue", 1.0, 2.0)]

    read = whatif.changes_of("queue=9999;nowhere=5;queue;=3;queue=250", "99", known)

    assert read.parameters() == (("stage", "queue=2"),)
    assert whatif.changes_of(None, "3", known).parameters() == (("replicas", "3"),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("queue=0", "queue removed"),
        ("ranker auth=0.5, queue=2", "ranker auth at 50 %, queue at 200 %"),
        ("+1 replica", "+1 replica"),
        ("postgres=typical", "postgres=typical"),
    ],
)
def test_change_is_written_in_words(change: str, words: str) -> None:
    assert whatif.in_words(change) == words


def test_percentiles_of_too_few_requests_have_no_row() -> None:
    row = {"p50_ms": 5.0, "p95_ms": None, "p99_ms": None, "p50_ci95_ms": [4.0, 6.0], "p95_ci95_ms": None}
    answer = {"p50_ms": 10.0, "p95_ms": 20.0, "p99_ms": None, "rows": [row | {"ci95_ms": None}]}

    rows = whatif.percentile_rows(answer)

    assert rows.select("percentile", "now_ms", "then_ms", "low_ms").rows() == [("p50", 10.0, 5.0, 4.0)]


def means(*rows: tuple[int, str, int, float]) -> pl.DataFrame:
    names = ["place", "stage", "stored", "mean_ms"]
    made = pl.DataFrame(rows, schema=names, orient="row")
    return made.with_columns(
        pl.lit(1.0).alias("shortest_ms"), pl.lit(9.0).alias("longest_ms"), requests="stored"
    )


def test_bars_stand_on_each_other_in_the_order_of_a_request() -> None:
    bars = percentile_split.bars(means((12, "inference", 3, 30.0), (12, "auth", 3, 10.0)), shares=False)

    assert bars.select("group", "stage", "start", "end").rows() == [
        ("p99\u201399.5", "auth", 0.0, 10.0),
        ("p99\u201399.5", "inference", 10.0, 40.0),
    ]


def test_bars_of_shares_end_at_one_and_too_small_groups_have_none() -> None:
    bars = percentile_split.bars(
        means((0, "inference", 3, 30.0), (0, "auth", 3, 10.0), (0, "other", 3, -1.0), (14, "auth", 2, 5.0)),
        shares=True,
    )

    assert bars["end"].max() == 1.0
    assert bars["start"].to_list() == [0.0, 0.25, 1.0]
    assert percentile_split.missing_groups(bars) == list(percentile_split.GROUPS[1:])


def test_large_selections_are_read_in_an_even_sample() -> None:
    assert [percentile_split.every(n) for n in (0, 100_000, 100_001, 3_000_000)] == [1, 1, 2, 30]


def test_traces_of_a_link_are_hex_and_not_too_many() -> None:
    one = "0123456789abcdef" * 2

    assert listing.traces_of(f"{one.upper()}, {one[:-1]},'; drop table requests,{one}") == (one, one)
    assert len(listing.traces_of(",".join([one] * 500))) == 200


MOVE: dict[str, Any] = {
    "measure": "slow",
    "service": "ranker",
    "stage": "queue",
    "category": "queue",
    "instance": "gpu-3",
    "version": "",
    "before": 3.0,
    "after": 90.0,
    "unit": "ms",
}
CHANGE: dict[str, Any] = {
    "at": "2026-11-30T14:05:00Z",
    "ci95_at": ["2026-11-30T14:04:00Z", "2026-11-30T14:06:00Z"],
    "move": MOVE,
    "before_ms": 3.0,
    "after_ms": 90.0,
    "p_value": 0.001,
    "excess_ms": 80.0,
    "share_of_tail": 0.7,
    "lasts": True,
    "with_it": [
        MOVE
        | {"service": "", "stage": "", "category": "", "instance": "", "measure": "errors", "unit": "share"},
    ],
}


def test_changes_say_where_what_and_when_in_order_of_time() -> None:
    early: dict[str, Any] = CHANGE | {"at": "2026-11-30T13:00:00Z", "with_it": [], "lasts": False}

    table = moments.change_table(report(changes=[CHANGE, early]))

    assert table["at"].to_list()[1] == datetime(2026, 11, 30, 14, 5, tzinfo=UTC)
    assert table["what"].to_list()[1] == "ranker \u00b7 queue \u00b7 gpu-3: slowest 5 %"
    assert table["from_to"].to_list()[1] == "3.00 ms \u2192 90.0 ms"
    assert table["lasts"].to_list() == ["went back", "lasts"]
    assert table["with_it"].to_list() == [None, "all requests: share of errors"]


def test_stages_over_time_stand_on_each_other() -> None:
    edges = ["2026-11-30T14:00:00Z", "2026-11-30T14:01:00Z", "2026-11-30T14:02:00Z"]
    lines = [
        {"service": "", "stage": "", "category": "", "mean_ms": [1.0, 1.0]},
        {"service": "ranker", "stage": "inference", "category": "gpu", "mean_ms": [20.0, 21.0]},
        {"service": "ranker", "stage": "auth", "category": "self", "mean_ms": [2.0, 3.0]},
        {"service": "model", "stage": "inference", "category": "self", "mean_ms": [5.0, 6.0]},
    ]

    bars = moments.timeline_bars(report(timeline={"edges": edges, "lines": lines, "slow_ms": [30.0, 31.0]}))

    assert bars.select("stage", "start", "end").rows()[:3] == [
        ("auth", 0.0, 2.0),
        ("inference", 2.0, 27.0),
        ("all others", 27.0, 28.0),
    ]
    assert moments.timeline_bars(report()).is_empty()


def test_report_without_changes_has_an_empty_table() -> None:
    assert moments.change_table(report()).is_empty()


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [(0.125, "share", "12.5 %"), (1234.0, "per_s", "1,234.0 /s"), (0.5, "ms", "0.500 ms")],
)
def test_end_of_a_move_has_its_unit(number: float, unit: str, text: str) -> None:
    assert moments.value(number, unit) == text
