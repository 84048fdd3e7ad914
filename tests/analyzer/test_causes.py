"""What the framework promises of every cause: nothing twice, nothing by chance, and proofs that run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Report, report
from tailscope_analyzer._causes import Claim, Detector, Fix, detectors
from tailscope_analyzer._causes._cause import claim_of
from tailscope_analyzer._causes._chance import at_least, at_least_events, rank_test
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._causes._guide import guide
from tailscope_analyzer._causes._judge import judge
from tailscope_analyzer._causes._netting import in_turn, net
from tests.analyzer.evidences import evidence_of
from tests.analyzer.windows import Window, healthy

if TYPE_CHECKING:
    from tailscope_analyzer._evidence import Evidence

PAGE = Path(__file__).parents[2] / "docs" / "causes.md"
FIXES = (Fix("Do something.", "a source"),)


def slow_inference() -> Evidence:
    window = healthy(400)
    window.ms["inference"] += np.where(window.some(0.05), 200.0, 0.0)
    return evidence_of(window)


def claim(evidence: Evidence, ms: float, **more: Any) -> Claim:
    columns, explained = claim_of(
        evidence, evidence.columns(stage="inference"), np.full(len(evidence), ms), beyond_typical=True
    )
    said: dict[str, Any] = {
        "cause": "gc_pause",
        "support": "inferred",
        "confidence": "likely",
        "summary": "It is slow.",
        "proofs": (),
    }
    return Claim(columns=columns, ms=explained, **(said | more))


def detector(cause: str) -> Detector:
    return Detector(cause, "something", (), FIXES, lambda _: [])


def test_direct_evidence_takes_its_time_before_a_pattern() -> None:
    evidence = slow_inference()
    pattern, direct = claim(evidence, 150.0), claim(evidence, 120.0, support="direct", cause="retries")

    first, second = net(evidence, in_turn(evidence, [pattern, direct]))

    assert first.cause == "retries"
    assert first.ms.max() == pytest.approx(120.0)
    # The slowest inference takes some 260 ms: what the first has left.
    assert second.ms.max() <= 150.0
    assert (first.ms + second.ms <= evidence.table(list(first.columns)) + 1e-9).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 500), st.integers(0, 9), st.booleans()), max_size=6))
def test_no_millisecond_is_explained_twice(asked: list[tuple[float, int, bool]]) -> None:
    claims = [
        claim(EVIDENCE, ms, rank=rank, support="direct" if direct else "inferred", summary=str(number))
        for number, (ms, rank, direct) in enumerate(asked)
    ]

    explained = sum((one.ms for one in net(EVIDENCE, in_turn(EVIDENCE, claims))), np.zeros(()))

    assert (explained <= EVIDENCE.ms(EVIDENCE.columns(stage="inference"))[:, None] + 1e-9).all()


EVIDENCE = slow_inference()


def test_a_cause_is_measured_as_the_stages_are() -> None:
    (cause,) = judge(EVIDENCE, [claim(EVIDENCE, 1e9)], [detector("gc_pause")])

    stage = EVIDENCE.excess(np.maximum(EVIDENCE.ms(EVIDENCE.columns(stage="inference")) - 40.0, 0.0))
    assert cause.excess_ms == pytest.approx(stage, rel=0.02)
    assert cause.ci95_ms[0] < cause.excess_ms < cause.ci95_ms[1]
    assert (cause.service, cause.stage) == ("ranker", "inference")
    assert cause.fix == FIXES


@pytest.mark.parametrize(
    "more",
    [{"ms": 5.0}, {"ms": 1e9, "p_value": 0.06}],
    ids=["less than a tenth of the excess", "more likely by chance than one window in twenty"],
)
def test_what_is_small_or_chance_is_not_said(more: dict[str, Any]) -> None:
    assert judge(EVIDENCE, [claim(EVIDENCE, **more)], [detector("gc_pause")]) == ()


def test_a_tenth_of_a_short_tail_is_less_than_anybody_feels() -> None:
    evidence = evidence_of(healthy(400))

    small = judge(evidence, [claim(evidence, 2.0)], [detector("gc_pause")])
    felt = judge(evidence, [claim(evidence, 4.0)], [detector("gc_pause")])

    assert 0.1 * evidence.excess_ms < 2.0 < 0.05 * evidence.typical_duration_ms < 4.0
    assert (small, len(felt)) == ((), 1)


def test_what_does_not_hold_leaves_its_time_to_the_next() -> None:
    chance = claim(EVIDENCE, 1e9, rank=1, p_value=0.5)
    holds = claim(EVIDENCE, 1e9, rank=2, cause="retries")

    causes = judge(EVIDENCE, [chance, holds], [detector("gc_pause"), detector("retries")])

    assert [(one.cause, round(one.share_of_tail, 1)) for one in causes] == [("retries", 1.0)]


def test_more_patterns_ask_for_more_evidence() -> None:
    weak, nothing = claim(EVIDENCE, 1e9, p_value=0.004), claim(EVIDENCE, 0.0, p_value=1.0)

    assert judge(EVIDENCE, [weak], [detector("gc_pause")])
    assert judge(EVIDENCE, [weak, *[nothing] * 9], [detector("gc_pause")])
    assert not judge(EVIDENCE, [weak, *[nothing] * 12], [detector("gc_pause")])


def test_a_contrast_subtracts_what_the_others_have_too() -> None:
    rng = np.random.default_rng(1)
    spent = rng.exponential(10.0, 2_000)
    struck = rng.random(2_000) < 0.1
    spent[struck] += 100.0

    found = contrast(spent, struck)

    assert found is not None
    assert found.p_value < 1e-50
    assert found.ms[struck].mean() == pytest.approx(100.0, rel=0.05)
    assert not found.ms[~struck].any()


def test_alike_requests_have_no_contrast() -> None:
    rng = np.random.default_rng(1)

    assert contrast(rng.exponential(10.0, 500), np.arange(500) % 2 == 0) is None


def stated_noise(window: Window) -> Window:
    """Let every request state losses, clocks and shapes that have nothing to do with its latency."""
    rng, n = window.rng, window.n
    window.state("cpu.run_queue_ms", rng.uniform(0, 5, n))
    window.state("eventloop.lag_ms", rng.exponential(3, n))
    window.state("page_faults.major", rng.poisson(0.1, n))
    window.state("gpu.utilization", rng.uniform(50, 100, n))
    window.state("gpu.clock_mhz", rng.choice([1980, 1400, 300], n, p=[0.8, 0.1, 0.1]), "inference")
    window.state("input.shape", np.array([f"1x{i}" for i in rng.zipf(1.5, n) % 50]))
    window.state("model.version", np.array([f"v{i // 60}" for i in range(n)]))
    return window


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [{"spread": 0.12}, {"spread": 0.5}, {"every_ms": 15.0}], ids=str)
def test_nothing_is_said_of_a_healthy_window(seed: int, shape: dict[str, float]) -> None:
    window = healthy(310, seed=seed, **shape)

    assert report(stated_noise(window).traces()).causes == ()


def test_causes_survive_the_way_through_json() -> None:
    window = healthy(400)
    lost = np.where(window.some(0.05), 80.0, 0.0)
    window.ms["preprocess"] += lost
    window.state("cpu.throttled_ms", lost)
    made = report(window.traces())

    assert made.causes
    assert Report.from_json(made.to_json()) == made
    assert set(made.causes[0]) >= {
        "cause",
        "service",
        "stage",
        "share_of_tail",
        "excess_ms",
        "confidence",
        "summary",
        "evidence",
        "fix",
        "traces",
    }


def test_every_detector_says_what_it_looks_for_and_what_to_try() -> None:
    named = [one.cause for one in detectors()]

    assert len(named) == len(set(named))
    for one in detectors():
        assert one.looks_for
        assert one.fixes
        assert {other for other, _ in one.not_confused_with} <= VOCABULARY - {one.cause}


VOCABULARY = {
    "gc_pause",
    "process_stall",
    "cpu_throttling",
    "cpu_contention",
    "memory_pressure",
    "gpu_idle_clock",
    "gpu_thermal",
    "gpu_contention",
    "host_bound",
    "recompilation",
    "cold_start",
    "adapter_load",
    "kv_preemption",
    "noisy_neighbour",
    "batch_window",
    "batch_mate",
    "queueing",
    "head_of_line",
    "event_loop_blocked",
    "lock_contention",
    "slow_dependency",
    "connection_setup",
    "retries",
    "network_delay",
    "client_side",
    "large_input",
    "large_payload",
    "cache_miss",
    "slow_instance",
    "slow_version",
    "unattributed",
}


def test_every_cause_of_the_vocabulary_has_a_detector() -> None:
    assert {one.cause for one in detectors()} == VOCABULARY


def test_the_page_of_causes_is_that_of_the_detectors() -> None:
    """TAILSCOPE_UPDATE_GOLDEN=1 writes it anew."""
    if os.environ.get("TAILSCOPE_UPDATE_GOLDEN"):
        PAGE.write_text(guide(detectors()), encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == guide(detectors()), "docs/causes.md differs from the detectors"


def test_the_rank_test_is_the_usual_one() -> None:
    """The figure is scipy's: mannwhitneyu(..., alternative="greater", method="asymptotic")."""
    mine, theirs = np.array([3.0, 5.0, 5.0, 9.0, 12.0]), np.array([1.0, 2.0, 5.0, 4.0, 6.0, 3.0])

    assert rank_test(mine, theirs) == pytest.approx(0.06977357186265792)
    assert rank_test(np.ones(5), np.ones(6)) == 1.0
    assert at_least(3, 5, 0.5) == pytest.approx(0.5)
    assert at_least_events(1, 0.1) == pytest.approx(0.0951626)
