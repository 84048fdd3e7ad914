"""How often attribute search claims what is not so, and finds what is: made-up data whose truth is known.

usage: by `python -m benchmarks.attribution`, which prints the rows.

Null data: latency knows nothing of any attribute (beyond what the class of a request decides): many
attributes, a heavy tail, latency and attributes that both come in runs, the same attribute under several
names, attributes that go with operation and prompt length, requests sampled by latency, few requests.
Planted: one value, first occurrence, changed value, cut of a number or pair of values slows its requests down
and so moves p99 by a tenth of the excess or more; a claim is right if its requests are those (Jaccard's index
of .8). ATTRIBUTE_SETS in the environment asks for other than 15 data sets of each kind.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tailscope_analyzer._effects import find_effects
from tailscope_analyzer._effects._candidates import attributes_of, candidates_of
from tests.analyzer.facts import evidence_with, with_order

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from tailscope_analyzer._effects import Effect
    from tailscope_analyzer._evidence import Evidence

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

Row = tuple[str, str, str, int]
SETS = int(os.environ.get("ATTRIBUTE_SETS", "15"))
"""Data sets of each shape of null data, and of each kind of plant."""
CLAIMS_BAR = 0.05
FOUND_BAR = 0.95
ALIKE = 0.8
LEAST_EFFECT = 0.1


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Yield what was measured, its value, its bar and n."""
    del args
    claimed: list[bool] = []
    for name, shape in SHAPES.items():
        mine = [bool(find_effects(shape(np.random.default_rng([seed, 1]))).rows) for seed in range(SETS)]
        claimed += mine
        yield f"attributes: null, {name}", f"{np.mean(mine):.1%}", "", len(mine)
    rate = float(np.mean(claimed))
    missed = " missed" if rate > CLAIMS_BAR else ""
    bar = f"<= {CLAIMS_BAR:.0%}"
    yield "attributes: null data with any claim", f"{rate:.1%}{missed}", bar, len(claimed)
    yield from _planted_rows()


def _texts(rng: np.random.Generator, n: int, keys: int) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key in range(keys):
        share = rng.dirichlet(np.full(int(rng.integers(2, 12)), 0.7))
        facts[f"a{key}"] = [f"v{one}" for one in rng.choice(len(share), n, p=share)]
    return facts


def _numbers(rng: np.random.Generator, n: int, keys: int) -> dict[str, Any]:
    return {f"n{key}": np.exp(rng.normal(5, 1, n)).round() for key in range(keys)}


def _runs(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return attributes in runs: one roll-out, sessions of some length, a drifting number."""
    facts: dict[str, Any] = {}
    for key in range(4):
        facts[f"version{key}"] = np.where(np.arange(n) < rng.integers(n // 10, n - n // 10), "1", "2")
    for key in range(8):
        lengths = rng.geometric(1 / 40, n)
        facts[f"tenant{key}"] = np.repeat(rng.integers(0, 6, n), lengths)[:n].astype(np.str_)
    for key in range(4):
        walk = np.cumsum(rng.normal(0, 1, n))
        facts[f"level{key}"] = walk.round()
    return facts


def _drift(rng: np.random.Generator, n: int) -> Floats:
    """Return factors of latency that rise and fall, with bursts that strike neighbours alike."""
    wave = 1 + 0.4 * np.sin(np.arange(n) * 2 * np.pi / rng.uniform(n / 6, n) + rng.uniform(0, 6))
    burst = np.ones(n)
    for at in rng.integers(0, n, 6):
        burst[at : at + int(rng.integers(10, 60))] = rng.uniform(2, 5)
    factors: Floats = wave * burst
    return factors


def _many(rng: np.random.Generator) -> Evidence:
    facts = with_order(_texts(rng, 2000, 60)) | _numbers(rng, 2000, 40)
    return evidence_with(facts, 40 * rng.lognormal(0, 0.4, 2000))


def _heavy(rng: np.random.Generator) -> Evidence:
    facts = with_order(_texts(rng, 2000, 30)) | _numbers(rng, 2000, 10)
    return evidence_with(facts, 10 * (1 + rng.pareto(1.3, 2000)))


def _ordered(rng: np.random.Generator) -> Evidence:
    n = 2000
    facts = with_order(_texts(rng, n, 8)) | _runs(rng, n)
    return evidence_with(facts, 40 * rng.lognormal(0, 0.2, n) * _drift(rng, n))


def _aliased(rng: np.random.Generator) -> Evidence:
    own = _texts(rng, 2000, 12)
    named = {f"{name}.{key}": values for key, values in own.items() for name in ("x", "y", "z", "u", "v")}
    return evidence_with(with_order(named), 40 * rng.lognormal(0, 0.4, 2000))


def _classed(rng: np.random.Generator) -> Evidence:
    n = 3000
    operation = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    tokens = np.exp(rng.normal(6, 1, n)).round()
    facts = _texts(rng, n, 15)
    for key in range(6):
        # Seven of ten requests of an operation say the same, and long prompts more often carry a flag.
        facts[f"op{key}"] = np.where(rng.random(n) < 0.7, operation, rng.integers(0, 3, n)).astype(np.str_)
        facts[f"flag{key}"] = np.where(rng.random(n) < tokens / (tokens + 800), "long", "short")
    duration = np.array([10.0, 40.0, 160.0])[operation] * (1 + tokens / 400) * rng.lognormal(0, 0.25, n)
    return evidence_with(facts, duration, operation=operation.astype(np.str_), tokens=tokens)


def _lengthy(rng: np.random.Generator) -> Evidence:
    """Make flags that are set from some prompt length on, about: what they seem to add is the prompts'."""
    n = int(rng.choice([2000, 6000, 16_000]))
    tokens = np.exp(rng.normal(6, 1, n)).round()
    facts = _texts(rng, n, 10)
    for key in range(8):
        middle = np.exp(rng.normal(6.5, 0.8))
        chance = 1 / (1 + (middle / tokens) ** rng.choice([1, 3, 9]))
        facts[f"flag{key}"] = np.where(rng.random(n) < chance, "long", "short")
    duration = (20 + 0.02 * tokens ** rng.uniform(1, 1.3)) * rng.lognormal(0, 0.2, n)
    return evidence_with(facts, duration, tokens=tokens)


def _sampled(rng: np.random.Generator) -> Evidence:
    n = 12_000
    duration = 40 * rng.lognormal(0, 0.4, n)
    slow = duration > np.quantile(duration, 0.97)
    kept = slow | (rng.random(n) < 0.1)
    facts = pl.DataFrame(_texts(rng, n, 40)).filter(pl.Series(kept)).to_dict(as_series=False)
    return evidence_with(facts, duration[kept], weight=np.where(slow, 1.0, 10.0)[kept])


def _few(rng: np.random.Generator) -> Evidence:
    facts = with_order(_texts(rng, 400, 25)) | _numbers(rng, 400, 5)
    return evidence_with(facts, 40 * rng.lognormal(0, 0.5, 400))


SHAPES: dict[str, Callable[[np.random.Generator], Evidence]] = {
    "100 attributes": _many,
    "heavy tail": _heavy,
    "in runs": _ordered,
    "five names each": _aliased,
    "goes with the class": _classed,
    "goes with prompt length": _lengthy,
    "sampled by latency": _sampled,
    "400 requests": _few,
}


def _planted_rows() -> Iterator[Row]:
    right = claims = hit = sets = 0
    for name, plant in PLANTS.items():
        mine = [_judged(plant, seed) for seed in range(SETS)]
        good, all_, recalled = (sum(one[at] for one in mine) for at in range(3))
        told = f"precision {good / max(all_, 1):.2f}, recall {recalled / len(mine):.2f}"
        yield f"attributes: planted, {name}", told, "", len(mine)
        right, claims, hit, sets = right + good, claims + all_, hit + recalled, sets + len(mine)
    for what, value in (("precision", right / max(claims, 1)), ("recall", hit / sets)):
        missed = " missed" if value < FOUND_BAR else ""
        yield f"attributes: planted, {what}", f"{value:.3f}{missed}", f">= {FOUND_BAR}", sets


def _judged(plant: Callable[[np.random.Generator, dict[str, Any]], Bools], seed: int) -> tuple[int, int, int]:
    """Return right claims, claims, and whether the planted one is among them."""
    rng, n = np.random.default_rng([seed, 2]), 8000
    facts = with_order(_texts(rng, n, 30)) | _numbers(rng, n, 10)
    before = 40 * rng.lognormal(0, 0.3, n)
    while True:
        struck = plant(rng, facts)
        slower = struck & (rng.random(n) < rng.uniform(0.4, 1))
        after = np.where(slower, before * rng.uniform(1.8, 3), before)
        moved = float(np.quantile(after, 0.99) - np.quantile(before, 0.99))
        if moved >= LEAST_EFFECT * (np.quantile(after, 0.99) - np.median(after)):
            break
    evidence = evidence_with(facts, after)
    claims = find_effects(evidence).rows
    right = sum(_same(evidence, claim, struck) for claim in claims)
    return right, len(claims), int(right > 0)


def _same(evidence: Evidence, claim: Effect, struck: Bools) -> bool:
    """Tell whether a claim is about the requests that were struck."""
    mask = np.ones(len(struck), dtype=bool)
    for name, value in zip(claim.attribute.split(" & "), claim.value.split(" & "), strict=True):
        mask &= _mask(evidence, name, value)
    return float((mask & struck).sum()) >= ALIKE * float((mask | struck).sum())


def _mask(evidence: Evidence, name: str, value: str) -> Bools:
    side, _, number = value.partition(" ")
    if side in (">=", "<=") and evidence.facts[name].dtype.is_numeric():
        values = evidence.facts[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        # A value is written with six digits.
        return values >= float(number) * (1 - 1e-6) if side == ">=" else values <= float(number) * (1 + 1e-6)
    attributes, _ = attributes_of(evidence.facts.select(name))
    candidates, _ = candidates_of(attributes[0], evidence.weight)
    return next(one.mask() for one in candidates if one.value == value)


def _one_value(rng: np.random.Generator, facts: dict[str, Any]) -> Bools:
    while True:
        values = np.array(facts[f"a{rng.integers(30)}"])
        struck: Bools = values == rng.choice(values)
        if 0.01 <= struck.mean() <= 0.15:
            return struck


def _first_time(rng: np.random.Generator, facts: dict[str, Any]) -> Bools:
    shapes = np.minimum(rng.zipf(1.2, 8000), 2000)
    facts |= with_order({"shape": shapes.astype(np.str_).tolist()})
    first: Bools = facts["first:shape"].to_numpy()
    return first


def _changed(rng: np.random.Generator, facts: dict[str, Any]) -> Bools:
    lengths = rng.geometric(1 / rng.uniform(10, 50), 8000)
    model = np.repeat(rng.integers(0, 4, 8000), lengths)[:8000].astype(np.str_)
    facts |= with_order({"model": model.tolist()})
    changed: Bools = facts["changed:model"].fill_null(value=False).to_numpy()
    return changed


def _of_many_names(rng: np.random.Generator, facts: dict[str, Any]) -> Bools:
    """Strike a value that others follow: a node's zone, its disk, its image."""
    struck: Bools = rng.random(8000) < rng.uniform(0.02, 0.1)
    for key, follows in enumerate(rng.uniform(0.5, 0.95, 5)):
        value = np.where(rng.random(8000) < follows, struck, rng.random(8000) < 0.2)
        facts[f"follows{key}"] = np.where(value, "yes", "no")
    facts["node"] = np.where(struck, "n7", rng.choice(["n1", "n2", "n3"], 8000))
    return struck


def _large_number(rng: np.random.Generator, facts: dict[str, Any]) -> Bools:
    values = facts[f"n{rng.integers(10)}"]
    struck: Bools = values >= np.quantile(values, rng.uniform(0.88, 0.985))
    return struck


def _two_at_once(rng: np.random.Generator, facts: dict[str, Any]) -> Bools:
    n = 8000
    facts["left"] = np.where(rng.random(n) < rng.uniform(0.15, 0.4), "x", "y")
    facts["right"] = np.where(rng.random(n) < rng.uniform(0.15, 0.4), "x", "y")
    struck: Bools = (facts["left"] == "x") & (facts["right"] == "x")
    return struck


PLANTS: dict[str, Callable[[np.random.Generator, dict[str, Any]], Bools]] = {
    "one value": _one_value,
    "a value that others follow": _of_many_names,
    "first occurrence": _first_time,
    "changed value": _changed,
    "large number": _large_number,
    "two at once": _two_at_once,
}
