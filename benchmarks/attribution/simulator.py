"""How right the report is where the truth is known: simulated services, with and without faults.

usage: by `python -m benchmarks.attribution --only simulator`, which prints the rows.

Coverage: requests drawn at random from a million simulated ones; how often the 95 % interval of a stage's
excess holds that of the million, and that of what a fault adds to the requests that it strikes. Shares: the
report on spans with clocks of milliseconds that differ between hosts, against the exact times of the same
requests. Mysteries: services with one thing wrong, whose cause has to come first; variants that no detector
was made with; and healthy ones, of which nothing may be said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from tailscope_analyzer import report
from tailscope_analyzer._parts import Part, Parts
from tailscope_analyzer._quantile import Smoother
from tailscope_analyzer._spread import spread_of
from tailscope_analyzer.simulate import (
    CODE,
    CONVERSATION,
    CacheMiss,
    ClockGrain,
    ClockSkew,
    Fault,
    GpuContention,
    NetworkDelay,
    Overload,
    Service,
    SlowDependency,
    SlowVersion,
    run,
)
from tailscope_analyzer.simulate._run import stage_times
from tests.analyzer.mysteries import HEALTHY, MYSTERIES, VARIANTS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._report import StageRow
    from tailscope_analyzer.simulate import Truth
    from tests.analyzer.mysteries import Mystery

Row = tuple[str, str, str, int]
SERVICES: Final[dict[str, tuple[Service, tuple[Fault, ...]]]] = {
    "chat": (Service(traffic=CONVERSATION, per_s=10, slots=64), ()),
    "code": (Service(traffic=CODE, per_s=10, slots=64), ()),
    "slow peer": (Service(), (SlowDependency(share=0.04),)),
    "queue": (Service(slots=1, per_s=12), (Overload(times=2),)),
}
CAUSES: Final[dict[str, tuple[Service, Fault]]] = {
    "slow peer": (Service(), SlowDependency(share=0.04)),
    "rare slow way": (Service(), NetworkDelay(share=0.02)),
    "cold cache": (Service(), CacheMiss(ms=120, share=0.15)),
    "slow version": (Service(instances=4), SlowVersion(times=2, share=0.3)),
}
OF_CAUSES: Final = 200_000
"""Requests of the populations of causes: each is served twice, with and without the fault."""
POPULATION: Final = 1_000_000
SIZES: Final = (500, 2_000, 10_000)
SAMPLES: Final = 200
FELT: Final = 0.01
"""Of the excess; stages that add less are left out of coverage."""
SEEDS: Final = 3
FRESH: Final = 5_000
"""The first of the seeds that no detector was made with."""


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Return what was measured, its value, its bar and n."""
    del args
    yield from _coverage_rows()
    yield from _cause_coverage_rows()
    yield _share_row()
    yield from _mystery_rows()


def _coverage_rows() -> Iterator[Row]:
    covered: dict[int, list[Floats]] = {size: [] for size in SIZES}
    for service, faults in SERVICES.values():
        table = np.column_stack([*stage_times(1, POPULATION, service, faults).values()])
        for size in SIZES:
            covered[size].append(_coverage(table, size))
    for size, found in covered.items():
        every = np.concatenate(found)
        pooled = float(every.mean())
        verdict = "" if 0.92 <= pooled <= 0.98 else " missed"
        measured = f"{pooled:.3f} (stages {every.min():.2f} to {every.max():.2f}){verdict}"
        yield (
            f"coverage of 95 % intervals of stages, {size:,} requests",
            measured,
            "0.92 to 0.98",
            len(found) * SAMPLES,
        )


def _cause_coverage_rows() -> Iterator[Row]:
    covered: dict[int, list[float]] = {size: [] for size in SIZES}
    for service, fault in CAUSES.values():
        took, without = (
            np.sum([*stage_times(1, OF_CAUSES, service, faults).values()], axis=0)
            for faults in ((fault,), ())
        )
        table = np.column_stack([took - without, without])
        for size in SIZES:
            covered[size].append(float(_coverage(table, size)[0]))
    for size, found in covered.items():
        pooled = float(np.mean(found))
        verdict = "" if 0.92 <= pooled <= 0.98 else " missed"
        measured = f"{pooled:.3f} (causes {min(found):.2f} to {max(found):.2f}){verdict}"
        yield (
            f"coverage of 95 % intervals of causes, {size:,} requests",
            measured,
            "0.92 to 0.98",
            len(found) * SAMPLES,
        )


def _coverage(table: Floats, size: int) -> Floats:
    """Return for each stage, and for all together, in how many samples its interval holds the truth."""
    rng = np.random.default_rng(size)
    truth = _excess(table, (POPULATION, POPULATION))
    groups = [[at] for at in range(table.shape[1]) if truth[at] > FELT * truth.sum()]
    groups.append(list(range(table.shape[1])))
    hits = np.zeros(len(groups))
    smoothers = Smoother(size, 0.5), Smoother(size, 0.99)
    edges = np.linspace(0.0, 1.0, size + 1)
    weights = [one.exact(edges) for one in smoothers]
    for _ in range(SAMPLES):
        split = _split(table[rng.integers(0, len(table), size)])
        spread = spread_of(split, smoothers, weights[1], faster_half=False)
        excess = (weights[1] - weights[0]) @ split.matrix
        for number, columns in enumerate(groups):
            low, high = spread.interval(columns, float(excess[columns].sum()))
            hits[number] += low <= truth[columns].sum() <= high
    return hits / SAMPLES


def _excess(table: Floats, sizes: tuple[float, float]) -> Floats:
    """Return the split of p99 - p50 of exact times, smoothed as a sample of these sizes is."""
    ordered = table[np.argsort(table.sum(axis=1), kind="stable")]
    edges = np.linspace(0.0, 1.0, len(table) + 1)
    weight = Smoother(sizes[1], 0.99).exact(edges) - Smoother(sizes[0], 0.5).exact(edges)
    split: Floats = weight @ ordered
    return split


def _split(table: Floats) -> Parts:
    duration = table.sum(axis=1)
    order = np.argsort(duration, kind="stable")
    return Parts(
        trace_ids=pl.Series(np.arange(len(table))),
        duration_ms=duration[order],
        weight=np.ones(len(table)),
        matrix=csr_array(table[order]),
        parts=[Part("llm", str(number), "self") for number in range(table.shape[1])],
    )


def _share_row() -> Row:
    errors: list[float] = []
    for seed in range(SEEDS):
        for service, faults in [*SERVICES.values(), (Service(), (GpuContention(),))]:
            blemishes = [ClockGrain(ms=1.0), ClockSkew(ms=20.0)]
            simulation = run(seed, 10_000, service=service, faults=faults, blemishes=blemishes)
            errors += _share_errors(simulation.truth, report(simulation.traces).stages)
    mean, worst = 100 * float(np.mean(errors)), 100 * float(np.max(errors))
    verdict = "" if mean <= 3 else " missed"
    measured = f"{mean:.2f} points (worst stage {worst:.1f}){verdict}"
    return "error of a stage's share, clocks of 1 ms, skewed", measured, "<= 3 points", len(errors)


def _share_errors(truth: Truth, stages: tuple[StageRow, ...]) -> list[float]:
    n = len(truth.duration_ms)
    exact = _excess(np.column_stack([*truth.stage_ms.values()]), (n, n))
    shares = dict(zip(truth.stage_ms, exact / exact.sum(), strict=True))
    found = dict.fromkeys(shares, 0.0)
    for row in stages:
        name = "dependency" if row.category == "dependency" else row.stage
        found[name] = found.get(name, 0.0) + row.share
    return [abs(found[name] - share) for name, share in shares.items() if max(share, found[name]) > FELT]


def _mystery_rows() -> Iterator[Row]:
    yield _solved("mysteries: right cause first", MYSTERIES, range(SEEDS))
    yield _solved("variants outside that list: right cause first", VARIANTS, range(FRESH, FRESH + SEEDS))
    claims, windows = 0, 0
    for service, blemishes in HEALTHY.values():
        for seed in range(FRESH, FRESH + 3 * SEEDS):
            claims += bool(report(run(seed, 1000, service=service, blemishes=blemishes).traces).causes)
            windows += 1
    verdict = "" if claims <= 0.05 * windows else " missed"
    yield "healthy services: any cause claimed", f"{claims / windows:.1%}{verdict}", "<= 5 %", windows


def _solved(measured: str, mysteries: Mapping[str, Mystery], seeds: range) -> Row:
    right, every, missed = 0, 0, set[str]()
    for name, mystery in mysteries.items():
        for seed in seeds:
            simulation = run(seed, mystery.n, service=mystery.service, faults=[mystery.fault])
            causes = report(simulation.traces).causes
            every += 1
            if causes and causes[0]["cause"] == mystery.cause:
                right += 1
            else:
                missed.add(name)
    told = f" ({', '.join(sorted(missed))})" if missed else ""
    verdict = "" if right >= 0.95 * every else " missed"
    return measured, f"{right} of {every}{told}{verdict}", ">= 95 %", every
