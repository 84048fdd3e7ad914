"""The tail is split without a remainder, refused where it must be, and as sure as it says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import InputError, Report, Selection, Traces, headline, report
from tailscope_analyzer._edges import call_name, callee_of
from tailscope_analyzer._quantile import Smoother, sample_quantile, weighted_quantile
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
    ]
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


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_positive_number_is_refused(weight: float) -> None:
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
