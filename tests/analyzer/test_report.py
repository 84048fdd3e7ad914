"""The tail is split without a remainder, refused where it must be, and as sure as it says."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import InputError, Report, Selection, Traces, headline, report
from tailscope_analyzer._edges import call_name, callee_of
from tailscope_analyzer._quantile import (
    Smoother,
    effective_size,
    quantile_interval,
    sample_quantile,
    weighted_quantile,
)
from tests.analyzer.build import span, table
from tests.analyzer.populations import mixed, traces_of


@given(
    st.lists(st.tuples(*[st.integers(0, 10**10)] * 3), min_size=60, max_size=120),
    st.sampled_from([0.6, 0.9, 0.95]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_stages_and_services_sum_to_the_excess(
    rows: list[tuple[int, int, int]], q: float, weighted: bool
) -> None:
    columns = np.array(rows).T / 1e6
    keys = [("api", "queue", "queue"), ("api", "network", "gap"), ("db", "other", "self")]
    weight = 1 + np.arange(len(rows)) % 3 if weighted else None

    made = report(traces_of(dict(zip(keys, columns, strict=True)), weight=weight), percentile=q)

    scale = max(abs(made.excess_ms), made.baseline.ms or 0.0, 1e-9)
    assert abs(sum(row.excess_ms for row in made.stages) - made.excess_ms) <= 1e-9 * scale
    assert abs(sum(row.excess_ms for row in made.services) - made.excess_ms) <= 1e-9 * scale
    for row in made.stages:
        assert row.tail_ms - row.typical_ms == pytest.approx(row.excess_ms, abs=1e-9 * scale)


def test_the_smoothed_quantiles_are_those_of_scipy() -> None:
    from scipy.stats.mstats import hdquantiles

    duration = np.sort(np.random.default_rng(3).lognormal(3, 1, 1_000))
    edges = np.arange(1_001) / 1_000

    for q in (0.5, 0.95, 0.99):
        ours = Smoother(1_000, q).exact(edges) @ duration
        assert ours == pytest.approx(float(hdquantiles(duration, [q])[0]), rel=1e-12)
        assert Smoother(1_000, q).fast(edges) @ duration == pytest.approx(ours, rel=1e-6)


def test_sample_quantiles_are_linear_between_neighbours_as_in_sql() -> None:
    made = report(traces_of({("api", "other", "self"): [40.0, 10.0, 20.0, 30.0]}))

    assert (made.latency_ms.p50, made.latency_ms.max, made.latency_ms.mean) == (25.0, 40.0, 25.0)
    assert made.latency_ms.p90 == pytest.approx(37.0)
    assert made.latency_ms.p999 == pytest.approx(39.97)


def test_a_weight_counts_as_so_many_requests() -> None:
    ordered = np.array([1.0, 2.0, 3.0])

    assert weighted_quantile(ordered, np.ones(3), 0.9) == sample_quantile(ordered, 0.9)
    weight = np.array([2.0, 1.0, 4.0])
    for q in (0.1, 0.25, 0.4, 0.5, 0.99):
        repeated = sample_quantile(np.repeat(ordered, [2, 1, 4]), q)
        assert weighted_quantile(ordered, weight, q) == pytest.approx(repeated)

    light = traces_of({("api", "other", "self"): np.r_[np.full(900, 10.0), np.full(100, 50.0)]})
    heavy = traces_of(
        {("api", "other", "self"): np.r_[np.full(900, 10.0), np.full(100, 50.0)]},
        weight=np.r_[np.ones(900), np.full(100, 50.0)],
    )
    assert report(light).latency_ms.p50 == 10.0
    assert report(heavy).latency_ms.p50 == 50.0
    assert report(heavy).quality.sampled is True


@pytest.mark.parametrize(
    ("n", "q", "verdict"),
    [
        (299, 0.99, "too few requests: 299 of at least 300 that p99 needs"),
        (59, 0.95, "too few requests: 59 of at least 60 that p95 needs"),
        (2999, 0.999, "too few requests: 2999 of at least 3000 that p99.9 needs"),
        (0, 0.99, "too few requests: 0 of at least 300 that p99 needs; no requests match"),
    ],
)
def test_a_percentile_that_the_sample_cannot_carry_is_refused(n: int, q: float, verdict: str) -> None:
    refused = report(traces_of({("api", "other", "self"): np.linspace(1, 2, n)}), percentile=q)

    assert refused.stages == refused.services == refused.edges == ()
    assert (refused.requests, refused.excess_ms, refused.baseline.ms) == (n, 0.0, None)
    assert refused.quality.verdict == verdict
    assert (refused.latency_ms.p50 is None) is (n == 0)
    assert len(refused.slowest) == min(n, 10)
    assert verdict in headline(refused) or headline(refused) == "No requests match."


@pytest.mark.parametrize(("n", "q"), [(300, 0.99), (60, 0.95), (3000, 0.999)])
def test_the_smallest_sample_that_carries_a_percentile_is_explained(n: int, q: float) -> None:
    assert report(traces_of(mixed(n)), percentile=q).stages


@pytest.mark.parametrize("percentile", [0.0, 0.5, 1.0, 99.0, float("nan")])
def test_a_percentile_without_a_tail_is_an_error(percentile: float) -> None:
    with pytest.raises(InputError, match="has no tail"):
        report(traces_of(mixed(10)), percentile=percentile)


def test_a_slow_median_is_measured_against_the_faster_half_and_said_so() -> None:
    # Three quarters of the requests sit at the window of 100 ms, as in a batch that never fills.
    rng = np.random.default_rng(5)
    queue = np.where(rng.random(2_000) < 0.25, rng.uniform(0, 100, 2_000), 100.0)
    made = report(
        traces_of(
            {("api", "queue", "queue"): queue, ("api", "inference", "self"): rng.normal(20, 1.5, 2_000)}
        )
    )

    assert made.baseline.kind == "faster_half"
    assert "the median request itself is slow" in made.baseline.reason
    assert (made.stages[0].stage, made.stages[0].category) == ("queue", "queue")
    assert sum(row.excess_ms for row in made.stages) == pytest.approx(made.excess_ms, rel=1e-9)
    assert made.baseline.ms is not None
    assert made.baseline.ms + made.excess_ms == pytest.approx(made.latency_ms.p99, rel=0.01)


def test_an_ordinary_tail_is_measured_against_the_median() -> None:
    made = report(traces_of(mixed(2_000)))

    assert made.baseline.kind == "p50"
    assert made.baseline.ms == pytest.approx(made.latency_ms.p50, rel=0.01)


def test_the_same_requests_give_the_same_report_in_any_order() -> None:
    parts = mixed(800)
    order = np.random.default_rng(1).permutation(800)
    made = traces_of(parts)
    shuffled = Traces.from_parts(
        made.requests[order.tolist()], made.ledger.sample(fraction=1, shuffle=True, seed=4)
    )

    assert report(made).to_json() == report(made).to_json() == report(shuffled).to_json()


@pytest.mark.usefixtures("only_the_split")
@pytest.mark.parametrize("n", [600, 5_000])
def test_intervals_cover_the_truth_about_as_often_as_they_say(n: int) -> None:
    whole = report(traces_of(mixed(400_000, seed=99)))
    truth = {row.stage: row.excess_ms for row in whole.stages}

    hits = dict.fromkeys(truth, 0)
    rounds = 40
    for number in range(rounds):
        for row in report(traces_of(mixed(n, seed=number))).stages:
            hits[row.stage] += row.ci95_ms[0] <= truth[row.stage] <= row.ci95_ms[1]

    # 95 % nominal; of 40 rounds, 31 or fewer would come up once in 10 000 if it were 93 %.
    assert all(count >= 32 for count in hits.values()), hits
    # Intervals wide enough to hold anything would pass too: the queue's excess is known.
    queue = report(traces_of(mixed(5_000))).stages[0]
    assert queue.stage == "queue"
    assert queue.ci95_ms[1] - queue.ci95_ms[0] < queue.excess_ms


def test_drawing_far_requests_in_blocks_changes_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_median = {
        ("api", "queue", "queue"): np.minimum(np.random.default_rng(2).uniform(0, 400, 20_000), 100),
        ("api", "inference", "self"): np.random.default_rng(3).lognormal(3, 0.05, 20_000),
    }
    blocks = report(traces_of(slow_median))
    monkeypatch.setattr("tailscope_analyzer._resample.WINDOW_SPREADS", 1e9)  # every request by itself
    exact = report(traces_of(slow_median))

    assert blocks.baseline.kind == "faster_half"
    for one, other in zip(blocks.stages, exact.stages, strict=True):
        width = other.ci95_ms[1] - other.ci95_ms[0]
        assert one.ci95_ms == pytest.approx(other.ci95_ms, abs=0.2 * width)


def test_a_percentile_between_two_kinds_of_requests_is_called_a_cliff() -> None:
    rng = np.random.default_rng(0)
    parts = {("api", "inference", "self"): np.where(np.arange(1_000) < 11, 900, 10) + rng.random(1_000)}

    assert "p99 stands on a cliff between two kinds of requests" in report(traces_of(parts)).quality.verdict


def test_a_median_between_two_kinds_of_requests_is_called_a_cliff_too() -> None:
    rng = np.random.default_rng(0)
    parts = {("api", "network", "gap"): np.where(np.arange(1_000) < 490, 44, 0.3) + rng.random(1_000)}

    assert report(traces_of(parts)).quality.verdict.startswith("p50 stands on a cliff between two kinds")


def test_time_that_the_ledger_leaves_out_is_untraced() -> None:
    made = traces_of(mixed(400))
    without = Traces.from_parts(made.requests, made.ledger.filter(stage="queue"))

    rows = {(row.stage, row.category): row for row in report(without).stages}

    assert set(rows) == {("queue", "queue"), ("other", "untraced")}
    assert sum(row.excess_ms for row in rows.values()) == pytest.approx(report(without).excess_ms, rel=1e-9)


def test_edges_are_the_gaps_and_dependencies() -> None:
    made = report(traces_of(mixed(500)))

    gap = next(row for row in made.stages if row.category == "gap")
    assert [(edge.caller, edge.callee) for edge in made.edges] == [("api", "db")]
    assert made.edges[0].excess_ms == pytest.approx(gap.excess_ms)


def test_a_row_names_whom_its_calls_went_to_and_what_the_median_request_spends() -> None:
    made = report(traces_of(mixed(500)))

    assert {row.category: row.callees for row in made.stages} == {"self": (), "queue": (), "gap": ("db",)}
    assert made.baseline.kind == "p50"
    assert all(row.median_ms == row.typical_ms for row in made.stages)


@pytest.mark.parametrize(
    ("category", "operation", "callee"),
    [
        ("gap", "api -> db", "db"),
        ("gap", "api -> odd: name", "odd: name"),
        ("dependency", "api -> ::1: GET a: b", "::1"),
        ("dependency", "GET user", ""),
        ("dependency", "copy a -> b", ""),
        ("self", "api -> db", ""),
    ],
)
def test_who_was_called_is_read_back_from_the_ledger(category: str, operation: str, callee: str) -> None:
    assert callee_of("api", category, operation) == callee


@given(st.text(), st.text().filter(lambda peer: ": " not in peer), st.text())
def test_a_peer_survives_the_ledger(caller: str, peer: str, named: str) -> None:
    assert callee_of(caller, "dependency", call_name(caller, peer, named)) == peer


def test_the_slowest_requests_name_what_exceeds_its_typical_time_most() -> None:
    parts = mixed(500)
    parts["api", "inference", "self"][3] = 5_000.0

    slowest = report(traces_of(parts)).slowest

    assert slowest[0].trace_id == f"{3:032x}"
    assert slowest[0].top_stage == "api inference"
    assert len(slowest) == 10
    assert [row.duration_ms for row in slowest] == sorted((row.duration_ms for row in slowest), reverse=True)


def test_the_window_repeats_the_selection_and_the_times_of_the_requests() -> None:
    chosen = Selection(service="api", operation="POST /predict", where="model = 'x'")

    window = report(traces_of(mixed(2), step_us=1_500_000), selection=chosen).window

    assert (window.service, window.operation, window.where) == ("api", "POST /predict", "model = 'x'")
    assert (window.start, window.end) == ("2025-01-01T00:00:00.000000Z", "2025-01-01T00:00:01.500000Z")


def test_json_is_version_1_with_every_field_and_round_trips() -> None:
    made = report(traces_of(mixed(400)))
    data = made.to_dict()

    assert list(data) == [
        "version",
        "window",
        "requests",
        "percentile",
        "latency_ms",
        "excess_ms",
        "baseline",
        "quality",
        "stages",
        "services",
        "edges",
        "attributes",
        "causes",
        "whatif",
        "slowest",
        "percentile_ms",
        "notes",
        "latency_ci95_ms",
        "excess_ci95_ms",
        "attribute_search",
        "mix",
        "changes",
        "timeline",
    ]
    assert data["version"] == 1
    assert list(data["window"]) == ["start", "end", "service", "operation", "where"]
    assert list(data["latency_ms"]) == ["p50", "p90", "p95", "p99", "p999", "max", "mean"]
    assert list(data["quality"]) == [
        "complete_share",
        "orphans",
        "dropped",
        "skewed",
        "clock_grain_ns",
        "sampled",
        "verdict",
        "stored",
        "sampled_share",
        "effective",
    ]
    assert list(data["latency_ci95_ms"]) == ["p50", "p90", "p95", "p99", "p999"]
    assert list(data["stages"][0]) == [
        "service",
        "stage",
        "category",
        "typical_ms",
        "tail_ms",
        "excess_ms",
        "share",
        "ci95_ms",
        "median_ms",
        "callees",
    ]
    assert Report.from_json(made.to_json()) == made
    assert Report.from_json(report(Traces.from_spans(table())).to_json()).requests == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not a report in JSON"),
        ('{"version": 2}', "version 1 was expected, not 2"),
        ("[1]", "version 1 was expected, not None"),
        ('{"version": 1}', "lacks or misplaces a field: 'window'"),
    ],
)
def test_what_is_no_report_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Report.from_json(text)


def test_requests_of_unknown_completeness_have_no_complete_share() -> None:
    made = traces_of(mixed(3))

    unknown = Traces.from_parts(made.requests.drop("complete"), made.ledger)

    assert report(unknown).quality.complete_share is None
    assert report(Traces.from_spans(table(span("root", 0, 1)))).quality.complete_share == 1.0


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_negative_or_no_number_is_refused(weight: float) -> None:
    traces = traces_of(mixed(400))
    first = pl.int_range(pl.len()) == 0
    requests = traces.requests.with_columns(
        sample_weight=pl.when(first).then(weight).otherwise(pl.col("sample_weight"))
    )

    with pytest.raises(InputError, match="1 of 400 requests have a sample_weight"):
        report(Traces.from_parts(requests, traces.ledger))


def test_rows_with_values_that_are_none_are_reported_without_them() -> None:
    traces = traces_of(mixed(400))
    lacking = pl.int_range(pl.len()) < 10
    requests = traces.requests.drop("duration_ns", "counted").with_columns(
        duration_ms=pl.when(lacking).then(float("nan")).otherwise(pl.col("duration_ms")),
        service=pl.lit(None, pl.String),
    )
    ledger = traces.ledger.drop("self_ns").with_columns(
        self_ms=pl.when(lacking).then(float("inf")).otherwise(pl.col("self_ms")),
        service=pl.lit(None, pl.String),
    )

    found = report(Traces.from_parts(requests, ledger))

    assert found.requests == 390
    assert {stage.service for stage in found.stages} == {"unknown_service"}
    assert "NaN" not in found.to_json()


def test_a_percentile_of_few_requests_is_not_called_a_cliff() -> None:
    duration = np.random.default_rng(0).lognormal(3, 0.6, 500)

    assert (
        "p99 rests on the 5 slowest requests alone"
        in report(traces_of({("api", "inference", "self"): duration})).quality.verdict
    )


def test_a_request_that_stands_for_none_is_left_out_without_a_remark() -> None:
    parts = mixed(400)
    without = report(traces_of({key: values[:399] for key, values in parts.items()}))

    made = report(traces_of(parts, weight=np.r_[np.ones(399), 0.0]))

    assert made.requests == made.quality.stored == 399
    assert made.quality == without.quality
    assert made.latency_ms == without.latency_ms


def test_counts_and_shares_are_of_requests_that_weights_stand_for() -> None:
    traces = traces_of(mixed(400), weight=np.where(np.arange(400) < 100, 10.0, 1.0))
    first = pl.int_range(pl.len()) < 100
    requests = traces.requests.with_columns(
        complete=~first, status=pl.when(first).then(pl.lit("error")).otherwise(pl.lit("ok"))
    )

    made = report(Traces.from_parts(requests, traces.ledger))

    assert made.requests == 1_300
    assert made.quality.stored == 400
    assert made.quality.sampled_share == pytest.approx(400 / 1_300)
    assert made.quality.complete_share == pytest.approx(300 / 1_300)
    assert made.notes == ("1,000 of 1,300 requests failed.",)


def test_weights_that_a_sender_invents_end_no_report() -> None:
    traces = traces_of(mixed(400), weight=np.full(400, 2.0**62))
    requests = traces.requests.with_columns(
        status=pl.lit("error"),
        operation=pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("a")).otherwise("operation"),
    )

    made = report(Traces.from_parts(requests, traces.ledger))

    assert made.requests == 400 * 2**62
    assert made.quality.effective == 400
    assert "9,000,000,000,000,000,000 of 9,000,000,000,000,000,000 requests failed." in made.notes
    assert "sampled: 400 stored" in made.to_text(width=300)
    assert Report.from_json(made.to_json()) == made


def test_unsampled_requests_are_worth_what_they_are() -> None:
    made = report(traces_of(mixed(400)))

    assert (made.requests, made.quality.stored, made.quality.effective) == (400, 400, 400)
    assert made.quality.sampled_share == 1
    assert "sampled" not in made.to_text()


def test_a_sampled_report_says_so_in_every_form() -> None:
    made = report(traces_of(mixed(900), weight=np.full(900, 4.0)))

    for page in (made.to_text(width=300), made.to_markdown(), made.to_html()):
        assert "sampled: 900 stored, which tell as much about p99 as 900 unsampled ones" in page
        assert "95 % intervals: p50" in page


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=200), st.floats(0.01, 0.99), st.floats(1, 1e6))
def test_an_effective_size_knows_no_unit_of_weight(weights: list[float], q: float, unit: float) -> None:
    weight = np.array(weights)

    n = effective_size(weight, q)

    assert effective_size(weight * unit, q) == pytest.approx(n, rel=1e-6)
    assert effective_size(np.full(len(weight), unit), q) == len(weight)
    assert n > 0


def test_effective_size_is_that_of_kish_where_weights_ignore_latency() -> None:
    weight = np.random.default_rng(1).choice([1.0, 5.0, 20.0], 100_000)
    kish = weight.sum() ** 2 / (weight**2).sum()

    for q in (0.5, 0.9, 0.99):
        assert effective_size(weight, q) == pytest.approx(kish, rel=0.05)


def test_a_tail_that_was_kept_whole_is_worth_more_than_its_median() -> None:
    # A hundredth of 9,900 fast requests, and all of 100 slow ones.
    weight = np.r_[np.full(99, 100.0), np.ones(100)]

    assert effective_size(weight, 0.99) > 40 * effective_size(weight, 0.5)
    assert effective_size(weight, 0.5) == pytest.approx(99, rel=0.05)


@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_intervals_of_quantiles_cover_them(q: float) -> None:
    rng = np.random.default_rng(4)
    true = float(np.exp(3 + 0.8 * {0.5: 0.0, 0.95: 1.6448536, 0.99: 2.3263479}[q]))
    hits = 0
    for _ in range(400):
        low, high = quantile_interval(np.sort(rng.lognormal(3, 0.8, 500)), np.ones(500), q)
        hits += low <= true <= high

    # 95 % nominal is 380; 365 would come up once in 4,000, and 400 would be an interval that is too wide.
    assert 366 <= hits < 400


def test_a_percentile_of_too_few_requests_has_no_interval() -> None:
    made = report(traces_of(mixed(100)))

    assert made.latency_ci95_ms.p95 is not None
    assert made.latency_ci95_ms.p99 is None
    assert made.excess_ci95_ms is None


def test_the_excess_has_an_interval_around_it() -> None:
    made = report(traces_of(mixed(2_000)))

    assert made.excess_ci95_ms is not None
    assert made.excess_ci95_ms[0] < made.excess_ms < made.excess_ci95_ms[1]


def test_a_report_of_before_there_were_intervals_can_be_read() -> None:
    data = report(traces_of(mixed(400))).to_dict()
    for name in ("latency_ci95_ms", "excess_ci95_ms"):
        del data[name]
    for name in ("stored", "sampled_share", "effective"):
        del data["quality"][name]

    read = Report.from_json(json.dumps(data))

    assert (read.quality.stored, read.latency_ci95_ms.p99, read.excess_ci95_ms) == (None, None, None)
