"""Targets: which requests are good, the budget's accounting, alerts, and what bad requests spend."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_analyzer import InputError, Slo, Traces, simulate, slo
from tailscope_analyzer._slo import PRESETS, Target, parse_period, parse_target
from tailscope_analyzer._slo._share import interval_of, share_of
from tests.analyzer.golden import assert_golden
from tests.analyzer.populations import mixed, traces_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


def of(
    duration_ms: npt.ArrayLike,
    *,
    weight: npt.ArrayLike | None = None,
    step_us: int = 1_000_000,
    failed: Sequence[int] = (),
) -> Traces:
    """Make requests that spend 1 ms on work and the rest in a queue; some of them failed."""
    total = np.asarray(duration_ms, dtype=float)
    parts = {
        ("api", "inference", "self"): np.ones(len(total)),
        ("api", "queue", "queue"): total - 1.0,
    }
    made = traces_of(parts, weight=weight, step_us=step_us)
    number = pl.int_range(pl.len())
    requests = made.requests.with_columns(
        status=pl.when(number.is_in(list(failed))).then(pl.lit("error")).otherwise(pl.lit("unset"))
    )
    return Traces.from_parts(requests, made.ledger)


def slow(n: int, bad: int, *, at_ms: float = 300.0) -> npt.NDArray[np.float64]:
    """Return durations of 100 ms, of which every n / bad-th is slow."""
    durations = np.full(n, 100.0)
    if bad:
        durations[(np.arange(bad) * n) // bad] = at_ms
    return durations


@pytest.mark.parametrize(
    ("text", "kind", "objective", "threshold_ms"),
    [
        ("p99<200ms", "latency", 0.99, 200.0),
        (" P99.9 < 1.5 s ", "latency", 0.999, 1500.0),
        ("p999<1s", "latency", 0.999, 1000.0),
        ("99%<200ms", "latency", 0.99, 200.0),
        ("errors<0.1%", "errors", 0.999, None),
        ("error < 5 %", "errors", 0.95, None),
        ("voice", "latency", 0.99, 100.0),
        ("recommendation", "latency", 0.99, 200.0),
        ("real-time", "latency", 0.99, 50.0),
    ],
)
def test_a_target_is_read(text: str, kind: str, objective: float, threshold_ms: float | None) -> None:
    target = parse_target(text)

    assert (target.kind, target.objective, target.threshold_ms) == (kind, objective, threshold_ms)


def test_the_budget_is_what_is_left_of_the_objective() -> None:
    assert [parse_target(text).budget for text in ("p99<1s", "p99.9<1s", "errors<0.1%")] == [
        0.01,
        0.001,
        0.001,
    ]


@pytest.mark.parametrize(
    "text",
    ["", "p99", "p99<200", "p0<1s", "p100<1s", "100%<1s", "p99<0ms", "errors<0%", "errors<100%", "99<1s"],
)
def test_what_is_no_target_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match=r"Not a target: .*p99<200ms.*errors<0\.1%.*voice"):
        parse_target(text)


def test_a_misspelt_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'voice'"):
        parse_target("voic")
    assert all(isinstance(parse_target(name), Target) for name in PRESETS)


def test_a_period_is_read() -> None:
    assert [parse_period(text) for text in ("30d", "4w", "12h")] == [2_592_000.0, 2_419_200.0, 43_200.0]
    with pytest.raises(InputError, match="Not a period: 'month'"):
        parse_period("month")


def test_a_kept_target_says_how_much_of_its_budget_went() -> None:
    found = slo(of(slow(10_000, 50)), target="p99<200ms")

    assert (found.status, found.certain) == ("met", True)
    assert (found.requests, found.bad, found.bad_share) == (10_000, 50, 0.005)
    assert found.budget_used == pytest.approx(0.5)
    assert found.exhausted_at is None
    assert found.verdict.startswith(
        "Met: 50 of 10,000 requests took 200.0 ms or more (0.5%, 95 % interval 0.37%"
    )


def test_a_missed_target_says_when_its_budget_was_used_up() -> None:
    found = slo(of(slow(10_000, 200)), target="p99<200ms")

    assert (found.status, found.certain) == ("missed", True)
    assert found.budget_used == pytest.approx(2.0)
    # The 101st slow request, of 200 one every 50 s: 5,000 s after the first.
    assert found.exhausted_at == "2025-01-01T01:23:20.000000Z"


def test_a_request_of_exactly_the_threshold_is_bad() -> None:
    assert slo(of(np.full(400, 200.0)), target="p99<200ms").bad == 400
    assert slo(of(np.full(400, 199.999)), target="p99<200ms").bad == 0


def test_what_chance_could_turn_round_is_said() -> None:
    missed = slo(of(slow(1_000, 12)), target="p99<200ms")
    met = slo(of(slow(1_000, 8)), target="p99<200ms")

    assert (missed.status, missed.certain, met.status, met.certain) == ("missed", False, "met", False)
    assert all("could turn round" in one.verdict for one in (missed, met))


def test_too_few_requests_are_said_unless_the_answer_is_plain() -> None:
    few = slo(of(slow(200, 2)), target="p99<200ms")
    plain = slo(of(np.full(20, 300.0)), target="p99<200ms")

    assert few.status == "too_few"
    assert "needs 300 requests" in few.verdict
    assert plain.status == "missed"


def test_no_request_is_an_answer() -> None:
    found = slo(of(np.zeros(0)), target="voice")

    assert (found.status, found.requests, found.bad_share, found.missed) == ("too_few", 0, None, None)
    assert found.verdict == "No requests match."
    assert "No requests match." in found.to_text()
    assert "No requests match" in found.to_markdown()


def test_failed_requests_are_what_an_error_target_counts() -> None:
    found = slo(of(slow(4_000, 0), failed=range(0, 4_000, 100)), target="errors<0.1%")
    latency = slo(of(slow(4_000, 0), failed=range(0, 4_000, 100)), target="p99<200ms")

    assert (found.status, found.bad) == ("missed", 40)
    assert found.verdict.endswith("They are no slower than the others.")
    assert latency.bad == 0
    assert "40 requests failed in time: this target does not count them, errors<1% would." in latency.notes


def test_weights_count_as_the_requests_they_stand_for() -> None:
    durations = slow(1_000, 40)
    weight = np.where(durations > 200, 1.0, 10.0)

    sampled = slo(of(durations, weight=weight), target="p99<200ms")

    assert (sampled.requests, sampled.bad) == (9_640, 40)
    assert sampled.bad_share == pytest.approx(40 / 9_640)
    low, high = sampled.bad_ci95 or (0.0, 1.0)
    assert low < 40 / 9_640 < high
    assert high - low == pytest.approx(0.0027, rel=0.1), "that of 9,640 requests: the slow ones are all there"


@pytest.mark.parametrize(("hits", "n", "low", "high"), [(0, 100, 0.0, 0.0362), (5, 100, 0.0164, 0.1128)])
def test_the_interval_is_the_exact_binomial_one(hits: int, n: int, low: float, high: float) -> None:
    """Literal values of Clopper and Pearson's tables."""
    assert interval_of(hits / n, n) == pytest.approx((low, high), abs=5e-5)


def test_the_interval_holds_the_truth_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(5)
    weight = np.where(rng.random(2_000) < 0.5, 1.0, 3.0)
    held = 0
    for _ in range(300):
        low, high = share_of(rng.random(2_000) < 0.02, weight).ci95
        held += low <= 0.02 <= high

    assert held >= 276


@given(st.lists(st.tuples(st.booleans(), st.floats(1, 50)), min_size=1, max_size=40))
def test_a_share_lies_in_its_interval_and_knows_no_more_than_there_was(
    rows: list[tuple[bool, float]],
) -> None:
    bad, weight = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])

    share = share_of(bad, weight)

    assert 0 <= share.ci95[0] <= share.value + 1e-9
    assert share.value - 1e-9 <= share.ci95[1] <= 1
    assert share.effective <= weight.sum() * (1 + 1e-9)


def test_the_order_of_rows_does_not_matter() -> None:
    made = traces_of(mixed(800))
    shuffled = Traces.from_parts(
        made.requests.sample(fraction=1, shuffle=True, seed=3),
        made.ledger.sample(fraction=1, shuffle=True, seed=4),
    )

    assert slo(made, target="p95<60ms").to_json() == slo(shuffled, target="p95<60ms").to_json()


def test_an_incident_fires_both_alerts_and_a_past_one_none() -> None:
    """Two days of one request every 10 s; half of the last, or of the first, two hours are slow."""
    n, last = 17_280, 720
    now, past = slow(n, 0), slow(n, 0)
    now[-last::2] = past[:last:2] = 300.0

    found, over = (slo(of(one, step_us=10_000_000), target="p99<200ms") for one in (now, past))

    assert [(alert.name, alert.fires) for alert in found.alerts] == [("fast", True), ("slow", True)]
    assert [alert.fires for alert in over.alerts] == [False, False]
    fast, slower = found.alerts
    assert [fast.threshold, slower.threshold] == pytest.approx([14.4, 6.0])
    assert [round(window.length_s) for window in (fast.long, fast.short, slower.long, slower.short)] == [
        3_600,
        300,
        21_600,
        1_800,
    ]
    assert fast.long.burn_rate == pytest.approx(50, rel=0.02)


def test_a_short_recording_shortens_the_windows_alike_and_says_so() -> None:
    found = slo(of(slow(3_600, 10)), target="p99<200ms")

    assert [round(alert.long.length_s) for alert in found.alerts] == [600, 3599]
    assert "The data spans 60 min: the alerts' windows are shortened to that." in found.notes


def test_one_slow_request_of_a_handful_fires_nothing() -> None:
    durations = slow(30, 0)
    durations[-1] = 300.0

    found = slo(of(durations), target="p99<200ms")

    assert found.alerts[1].short.burn_rate > found.alerts[1].threshold
    assert not any(alert.fires for alert in found.alerts)


def test_a_budget_lasts_as_its_burn_rate_says() -> None:
    """A day in which 3 of 100 requests are slow burns a budget of 1 % at three times: 10 days of 30."""
    found = slo(of(slow(8_641, 260), step_us=10_000_000), target="p99<200ms")

    assert found.duration_s == 86_400
    assert found.period_used == pytest.approx(0.1, rel=0.01)
    assert found.lasts_s == pytest.approx(10 * 86_400, rel=0.05)
    assert str(found.ends_at)[:9] == "2025-01-1"


def test_of_more_than_a_period_the_last_one_counts() -> None:
    durations = slow(2_000, 0)
    durations[:1_000] = 300.0

    found = slo(of(durations), target="p99<200ms", period_s=999)

    assert (found.requests, found.bad, found.status) == (1_000, 0, "met")
    assert found.window.start == "2025-01-01T00:16:40.000000Z"


def test_the_course_ends_where_the_budget_does() -> None:
    found = slo(of(slow(5_000, 100)), target="p99<200ms")

    assert sum(point.requests for point in found.course) == 5_000
    assert sum(point.bad for point in found.course) == 100
    assert found.course[-1].budget_left == pytest.approx(-1.0)
    left = [point.budget_left for point in found.course]
    assert left == sorted(left, reverse=True)


def test_what_bad_requests_spend_sums_to_what_they_take_longer() -> None:
    found = slo(traces_of(mixed(4_000)), target="p95<60ms")

    missed = found.missed
    assert missed is not None
    assert missed.good_ms is not None
    assert sum(row.excess_ms for row in missed.stages) == pytest.approx(missed.excess_ms, abs=1e-9)
    assert sum(row.tail_ms for row in missed.stages) == pytest.approx(missed.bad_ms, abs=1e-9)
    assert sum(row.typical_ms for row in missed.stages) == pytest.approx(missed.good_ms, abs=1e-9)
    assert missed.stages[0].stage == "queue"
    assert "is waiting in the queue of api" in found.verdict


def test_where_slow_requests_are_ordinary_ones_nothing_is_blamed() -> None:
    rng = np.random.default_rng(2)
    parts = {
        ("api", stage, "self"): rng.lognormal(3, 0.2, 4_000) for stage in ("inference", "preprocess", "auth")
    }

    found = slo(traces_of(parts), target="p90<75ms")

    assert found.missed is not None
    assert found.verdict.endswith("and no stage stands out.")


def test_where_no_request_is_good_their_whole_time_is_told() -> None:
    found = slo(of(np.full(400, 300.0)), target="p99<200ms")

    assert found.missed is not None
    assert (found.missed.good_ms, found.missed.excess_ms) == (None, 300.0)
    assert found.verdict.endswith(
        "No request is good; of their 300.0 ms 299.0 ms is waiting in the queue of api."
    )


def test_two_bad_requests_are_too_few_to_explain() -> None:
    found = slo(of(slow(1_000, 2)), target="p99<200ms")

    assert found.missed is None
    assert "Too few bad requests to say what they spend their time on." in found.notes
    assert len(found.traces) == 2


def test_a_planted_cause_is_found_by_the_requests_that_missed() -> None:
    run = simulate.run(11, 3_000, faults=[simulate.SlowDependency(ms=900, share=0.04)])
    typical = float(np.median(run.traces.requests["duration_ms"].to_numpy()))

    found = slo(run.traces, target=f"p99<{typical * 1.6:.0f}ms")

    assert found.status == "missed"
    assert found.missed is not None
    assert [row["cause"] for row in found.missed.causes][:1] == ["slow_dependency"]


def test_the_text_and_the_markdown_begin_with_the_answer() -> None:
    found = sample()

    assert_golden("slo.txt", found.to_text(width=100))
    assert_golden("slo.md", found.to_markdown())
    assert max(map(len, found.to_text(width=60).splitlines())) <= 60


def test_the_json_has_every_field_and_is_the_same_each_time() -> None:
    data = json.loads(sample().to_json())

    assert sample().to_json() == sample().to_json()
    assert data["version"] == 1
    assert data["target"] == {
        "text": "p99<100ms",
        "kind": "latency",
        "objective": 0.99,
        "threshold_ms": 100.0,
    }
    assert set(data) == set(Slo.__dataclass_fields__)


def sample() -> Slo:
    return slo(traces_of(mixed(2_000), step_us=2_000_000), target="voice", name="ranker")


@pytest.mark.parametrize("period_s", [float("inf"), 1e300, 8e13])
def test_a_period_beyond_any_calendar_is_refused(period_s: float) -> None:
    with pytest.raises(InputError, match="up to 100 years"):
        slo(of(slow(400, 4)), target="p99<200ms", period_s=period_s)
