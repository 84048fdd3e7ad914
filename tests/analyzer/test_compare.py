"""What `compare` says of populations whose difference is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Comparison, InputError, Traces, compare
from tests.analyzer.build import span, table
from tests.analyzer.populations import traces_of

if TYPE_CHECKING:
    import numpy.typing as npt

WORK, QUEUE, GAP = ("api", "inference", "self"), ("api", "queue", "queue"), ("api", "network", "gap")


def drawn(n: int, seed: int, *, slower_ms: float = 0.0) -> Traces:
    """Draw n requests whose parts vary as real ones do; inference may take longer."""
    rng = np.random.default_rng(seed)
    parts: dict[tuple[str, str, str], npt.NDArray[np.float64]] = {
        WORK: rng.lognormal(3.0, 0.4, n) + slower_ms,
        QUEUE: rng.lognormal(1.0, 1.0, n),
        GAP: rng.lognormal(0.5, 0.5, n),
    }
    return traces_of(parts)


def trace(name: str, *calls: dict[str, Any], ms: float, operation: str = "GET /") -> list[dict[str, Any]]:
    """Give a request of `front` with its calls; ids are those of the trace."""
    spans = [
        {
            **one,
            "span_id": name + one["span_id"],
            "parent_span_id": name + (one["parent_span_id"] or operation),
        }
        for one in calls
    ]
    root = span(operation, 0, ms, service="front", kind="server")
    return [{**one, "trace_id": name} for one in ({**root, "span_id": name + operation}, *spans)]


def call(
    at_ms: float, ms: float, *, inside_ms: float, to: str = "db", by: str = "front", number: int = 0
) -> list[dict[str, Any]]:
    """Give a call of `ms` that the callee works on for `inside_ms` in its middle."""
    name, gap = f"{to}{number}", (ms - inside_ms) / 2
    client = span(f"call {to}", at_ms, at_ms + ms, service=by, kind="client", id=f"c{name}")
    server = span(
        f"serve {to}", at_ms + gap, at_ms + ms - gap, f"c{name}", service=to, kind="server", id=f"s{name}"
    )
    return [client, server]


def spans_of(*traces: list[dict[str, Any]]) -> Traces:
    return Traces.from_spans(table(*(one for some in traces for one in some)))


def service(found: Comparison, name: str) -> Any:
    return next(row for row in found.services if row.service == name)


def test_a_slower_stage_is_claimed_with_its_milliseconds() -> None:
    found = compare(drawn(2000, 1), drawn(2000, 2, slower_ms=10.0))
    first = found.stages[0]
    assert (first.stage, first.significant, found.significant, found.improved) == (
        "inference",
        True,
        True,
        False,
    )
    assert first.ci95_ms[0] < 10.0 < first.ci95_ms[1]
    assert first.ci95_ms[1] - first.ci95_ms[0] < 3.0
    assert vars(found.services[0])["service"] == "api"
    assert found.verdict.startswith("Slower: api takes ")
    assert "mostly in inference" in found.verdict


def test_a_faster_stage_is_an_improvement_and_no_regression() -> None:
    found = compare(drawn(2000, 1, slower_ms=10.0), drawn(2000, 2))
    assert (found.significant, found.improved) == (False, True)
    assert found.verdict.startswith("Faster: api takes ")


def test_the_same_population_is_rarely_claimed_to_have_changed() -> None:
    claims = sum(compare(drawn(400, 2 * seed), drawn(400, 2 * seed + 1)).significant for seed in range(25))
    assert claims <= 1


def test_latency_that_wanders_is_not_claimed_to_have_changed() -> None:
    claims = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        # A load that comes and goes over some 60 requests, on both sides.
        waves = np.convolve(rng.normal(0, 1, 2059), np.ones(60) / np.sqrt(60), "valid")
        work = 20 + 6 * waves + rng.normal(0, 1, 2000)
        claims += compare(traces_of({WORK: work[:1000]}), traces_of({WORK: work[1000:]})).significant
    assert claims <= 1


def test_the_tail_is_split_as_well() -> None:
    rng = np.random.default_rng(5)
    stall = np.where(rng.random(4000) < 0.03, 200.0, 0.0)
    found = compare(drawn(4000, 1), traces_of({WORK: rng.lognormal(3.0, 0.4, 4000), QUEUE: stall}))
    assert found.tail_excess_ms is not None
    assert sum(row.tail_ms or 0.0 for row in found.stages) == pytest.approx(found.tail_excess_ms, abs=1e-6)
    worst = max(found.stages, key=lambda row: row.tail_ms or 0.0)
    assert (worst.stage, round((worst.tail_ms or 0.0) / 200, 1)) == ("queue", 0.9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_difference_splits_without_a_remainder(before: int, after: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sides = [
        traces_of(
            {
                WORK: rng.integers(0, 50, n) + 1.0,
                QUEUE: rng.integers(0, 9, n) * 1.0,
                GAP: rng.integers(0, 2, n) * 7.0,
            },
            weight=rng.integers(1, 4, n),
        )
        for n in (before, after)
    ]
    found = compare(sides[0], sides[1])
    for rows in (found.stages, found.services):
        assert found.mix_ms + sum(row.excess_ms for row in rows) == pytest.approx(found.excess_ms, abs=1e-9)
    for stage in found.stages:
        assert stage.slower_ms + stage.calls_ms == pytest.approx(stage.excess_ms, abs=1e-9)
        assert stage.candidate_ms - stage.baseline_ms == pytest.approx(stage.excess_ms, abs=1e-9)
    for one in found.services:
        assert one.own_ms + one.egress_ms + one.ingress_ms == pytest.approx(one.excess_ms, abs=1e-9)
    assert Comparison.from_json(found.to_json()) == found


def test_the_mean_of_many_requests_is_what_is_compared() -> None:
    found = compare(drawn(100, 1), drawn(100, 2))
    mean = found.latency[-1]
    assert (mean.name, found.against) == ("mean", "mean")
    assert found.excess_ms == pytest.approx(mean.excess_ms)


def test_a_single_trace_is_compared_with_typical_ones() -> None:
    normal = [trace(f"n{at:02}", *call(1, 10, inside_ms=8), ms=20 + at % 3) for at in range(20)]
    stalled = [trace(f"x{at}", *call(1, 210, inside_ms=208), ms=221) for at in range(5)]
    found = compare(
        spans_of(*normal, *stalled), spans_of(trace("slow", *call(1, 210, inside_ms=208), ms=220))
    )
    assert (found.against, found.services[0].service) == ("typical", "db")
    assert found.services[0].excess_ms == pytest.approx(200.0, abs=1e-6)


def test_repeated_calls_are_told_from_slower_ones() -> None:
    once = [trace(f"n{at:02}", *call(1, 10, inside_ms=8), ms=20) for at in range(30)]
    often = [
        trace(
            f"m{at:02}",
            *(one for k in range(5) for one in call(1 + 12 * k, 10, inside_ms=8, number=k)),
            ms=80,
        )
        for at in range(30)
    ]
    found = compare(spans_of(*once), spans_of(*often))
    db = service(found, "db")
    assert db.own_ms == pytest.approx(32.0)
    assert db.excess_ms == pytest.approx(36.0)  # and half of the four gaps of 2 ms, which are no slower
    assert db.calls_ms == pytest.approx(36.0)
    served = next(row for row in found.calls if row.operation == "serve db")
    assert (served.baseline_calls, served.candidate_calls) == (1.0, 5.0)
    assert served.slower_ms == pytest.approx(0.0)


def test_more_requests_of_a_slow_kind_are_no_slow_down() -> None:
    def many(fast: int, slow: int) -> Traces:
        rng = np.random.default_rng(fast)
        return spans_of(
            *(trace(f"f{at:03}", ms=float(rng.normal(20, 1)), operation="GET /a") for at in range(fast)),
            *(trace(f"s{at:03}", ms=float(rng.normal(200, 10)), operation="GET /b") for at in range(slow)),
        )

    found = compare(many(180, 20), many(100, 100))
    assert not found.significant
    assert found.mix_ms == pytest.approx(0.4 * 180, rel=0.05)
    assert abs(found.like_for_like_ms) < 5.0
    assert "Other kinds of requests make the mean" in found.verdict
    assert sum(row.mix_ms for row in found.mix) == pytest.approx(found.mix_ms)


def test_a_slow_gap_is_the_callees_where_all_its_callers_see_it() -> None:
    def one(name: str, extra_ms: float) -> list[dict[str, Any]]:
        calls = [*call(1, 10 + extra_ms, inside_ms=8), *call(60, 10, inside_ms=8, to="auth")]
        inner = call(61, 5 + extra_ms, inside_ms=3, by="auth", number=9)
        inner[0]["parent_span_id"] = "sauth0"
        calls[2] = {**calls[2], "duration_ns": calls[2]["duration_ns"] + round(extra_ms * 1e6)}
        calls[3] = {**calls[3], "duration_ns": calls[3]["duration_ns"] + round(extra_ms * 1e6)}
        return trace(name, *calls, *inner, ms=140)

    rng = np.random.default_rng(1)
    normal = [one(f"n{at:02}", float(rng.uniform(0, 1))) for at in range(40)]
    slow = [one(f"m{at:02}", float(rng.uniform(20, 21))) for at in range(40)]
    found = compare(spans_of(*normal), spans_of(*slow))
    assert found.services[0].service == "db"
    assert found.services[0].ingress_ms > 30.0
    assert found.services[0].significant


def test_a_slow_gap_between_two_that_meet_nobody_else_names_the_edge() -> None:
    normal = [trace(f"n{at:02}", *call(1, 10 + at % 3, inside_ms=8), ms=40) for at in range(30)]
    slow = [trace(f"m{at:02}", *call(1, 30 + at % 3, inside_ms=8), ms=60) for at in range(30)]
    edge = compare(spans_of(*normal), spans_of(*slow)).edges[0]
    assert (edge.caller, edge.callee, edge.tied, edge.significant) == ("front", "db", True, True)
    assert edge.excess_ms == pytest.approx(20.0)


def test_spans_without_a_kind_are_calls_where_only_another_service_is_below_them() -> None:
    def plain(name: str, gap_ms: float) -> list[dict[str, Any]]:
        return [
            {**one, "kind": "unspecified"} for one in trace(name, *call(1, 8 + gap_ms, inside_ms=8), ms=50)
        ]

    normal = spans_of(*(plain(f"n{at:02}", 2 + at % 2) for at in range(20)))
    slow = spans_of(*(plain(f"m{at:02}", 22 + at % 2) for at in range(20)))
    assert [(row.caller, row.callee) for row in compare(normal, slow).edges] == [("front", "db")]


def test_a_side_without_requests_is_an_answer() -> None:
    empty = traces_of({WORK: np.zeros(0)})
    found = compare(drawn(20, 1), empty)
    assert (found.significant, found.stages) == (False, ())
    assert found.verdict == "Nothing to compare: the candidate has no requests that count."
    assert Comparison.from_json(found.to_json()) == found


def test_the_order_of_the_spans_does_not_matter() -> None:
    normal = [
        one for at in range(12) for one in trace(f"n{at:02}", *call(1, 10 + at % 4, inside_ms=8), ms=40)
    ]
    slow = [one for at in range(12) for one in trace(f"m{at:02}", *call(1, 20 + at % 4, inside_ms=9), ms=60)]
    forwards = compare(Traces.from_spans(table(*normal)), Traces.from_spans(table(*slow)))
    backwards = compare(Traces.from_spans(table(*normal[::-1])), Traces.from_spans(table(*slow[::-1])))
    assert forwards.to_json() == backwards.to_json()


def test_a_percentile_without_a_tail_is_refused() -> None:
    with pytest.raises(InputError, match="has no tail"):
        compare(drawn(10, 1), drawn(10, 2), percentile=0.5)


def test_other_json_is_refused() -> None:
    with pytest.raises(InputError, match="not a comparison"):
        Comparison.from_json('{"version": 7}')
