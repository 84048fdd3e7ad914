"""Which candidates are associated with slowness beyond chance.

Owns the tests of all candidates and the error control. Amounts of time are not looked at here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._effects._candidates import Candidate, candidates_of, per_request, sums
from tailscope_analyzer._effects._chance import ERROR_RATE, enrichment_log, q_values
from tailscope_analyzer._effects._classes import ASKED_FOR
from tailscope_analyzer._effects._found import Found
from tailscope_analyzer._effects._pruning import combined, prune
from tailscope_analyzer._effects._shifts import by_shifts_of_all, overspread_p

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._effects._candidates import Attribute
    from tailscope_analyzer._effects._found import Population

DECIDED: Final = 0.1
"""A value of whose variance less than this share is left within classes is decided by the class."""
IN_RUNS: Final = 2.0
"""Standard deviations below the number of runs that chance would make: beyond, values come in runs."""
MOST_STRONG: Final = 120
"""Candidates that are looked at one by one; more pass the first test only as cuts and names of the same."""
MOST_SHIFTED: Final = 25_000_000
"""Requests times candidates in runs that are shifted together: about a second."""


@dataclass(frozen=True, slots=True)
class _Tested:
    candidates: list[Candidate]
    runs_alike: Bools
    decided: Bools
    log_p: Floats


def search(attributes: Sequence[Attribute], population: Population) -> tuple[list[Found], list[Found], int]:
    """Return what is kept, all that is associated, and how many candidates were tested."""
    tested = _test_all(attributes, population)
    count = len(tested.candidates)
    if not count:
        return [], [], 0
    strong = _strong(tested, population)
    if not strong:
        return [], [], count
    # What merely goes with the class is another name of what was asked for, if that is slow.
    own = [one for one in strong if not one.decided or one.first.attribute.names & ASKED_FOR]
    pool = own + combined(prune(own, population, count), own, population, count)
    return prune(pool, population, count), strong, count


def _test_all(attributes: Sequence[Attribute], population: Population) -> _Tested:
    n, weight = len(population.weight), population.weight
    candidates: list[Candidate] = []
    having: list[Floats] = []
    runs_alike: list[Bools] = []
    decided: list[Bools] = []
    hits: list[Floats] = []
    for attribute in attributes:
        asked, counts = candidates_of(attribute, weight)
        if not asked:
            continue
        candidates += asked
        having.append(counts.having)
        expected = 1 + counts.stored * (n - counts.stored) / n
        runs_alike.append(counts.runs < expected - IN_RUNS * (expected - 1) / np.sqrt(n))
        decided.append(_decided(attribute, asked, population))
        of_class, of_all = (
            sums(per_request(attribute, weight * population.slow(decided=known)), asked)
            for known in (False, True)
        )
        hits.append(np.where(decided[-1], of_all, of_class))
    if not candidates:
        nobody = np.zeros(0, dtype=np.bool_)
        return _Tested([], nobody, nobody, np.zeros(0))
    known, total, hit = np.concatenate(decided), np.concatenate(having), np.concatenate(hits)
    log_p = np.zeros(len(total))
    for which in (False, True):
        mine = known == which
        slow = population.slow(decided=which)
        log_p[mine] = enrichment_log(hit[mine], total[mine], slow, weight)
    return _Tested(candidates, np.concatenate(runs_alike), known, log_p)


def _decided(attribute: Attribute, asked: Sequence[Candidate], population: Population) -> Bools:
    """Tell which candidates the class of a request decides."""
    classes, n = int(population.group.max()) + 1, len(population.group)
    if attribute.names & ASKED_FOR:
        return np.ones(len(asked), dtype=bool)
    if classes == 1:
        return np.zeros(len(asked), dtype=bool)
    codes = len(attribute.labels) + 1
    counts = np.bincount(population.group * codes + attribute.code + 1, minlength=classes * codes)
    table: Floats = counts.astype(np.float64).reshape(classes, codes)
    size = table.sum(axis=1)
    having = sums(table[:, 1:], asked)
    within = (having * (1 - having / np.maximum(size, 1.0)[:, None])).sum(axis=0)
    total = having.sum(axis=0)
    decided: Bools = within < DECIDED * total * (1 - total / n)
    return decided


def _strong(tested: _Tested, population: Population) -> list[Found]:
    """Return the candidates that chance does not explain, the strongest first.

    Values in runs and scattered ones are two families with half of the error rate each: whether a value
    comes in runs has nothing to do with latency, and runs need another proof (`_by_shifts`).
    """
    strong: list[Found] = []
    for runs in (False, True):
        family = np.flatnonzero(tested.runs_alike == runs)
        if not len(family):
            continue
        p = np.exp(tested.log_p[family])
        passing = np.flatnonzero(2 * q_values(p) <= ERROR_RATE)
        if not len(passing):
            continue
        first = passing[np.lexsort((passing, tested.log_p[family[passing]]))][:MOST_STRONG]
        if runs:
            q = 2 * np.maximum(_by_shifts(tested, family, population), p)
        else:
            q = 2 * q_values(_where_order_matters(tested, family, p, first, population))
        for at in first[q[first] <= ERROR_RATE].tolist():
            number = int(family[at])
            one, decided = tested.candidates[number], bool(tested.decided[number])
            strong.append(Found((one,), one.mask(), decided, float(tested.log_p[number]), float(q[at])))
    return sorted(strong, key=lambda one: one.strength)


def _where_order_matters(
    tested: _Tested, family: Ints, p: Floats, first: Ints, population: Population
) -> Floats:
    """Return p-values of scattered values, greater where order in time makes hits vary more than chance."""
    held = p.copy()
    for at in first.tolist():
        number = int(family[at])
        slow = population.slow(decided=bool(tested.decided[number]))
        held[at] = max(float(p[at]), overspread_p(tested.candidates[number].mask(), slow))
    return held


def _by_shifts(tested: _Tested, family: Ints, population: Population) -> Floats:
    """Return how likely any value in runs is to stand out as much as each does, by shifts of all together."""
    held = np.ones(len(family))
    # Which are looked at must not depend on latency, or the chance of the largest would seem too small.
    # The first few of a value are asked about several times over: they are the first to be left out.
    everyone: list[int] = family.tolist()
    is_nth = [tested.candidates[at].attribute.name.startswith("nth:") for at in everyone]
    looked_at = np.argsort(is_nth, kind="stable")[: MOST_SHIFTED // len(population.weight)]
    numbers: list[int] = family[looked_at].tolist()
    marked = ((tested.candidates[at].mask(), bool(tested.decided[at])) for at in numbers)
    held[looked_at] = by_shifts_of_all(marked, (population.slow_of_class, population.slow_of_all))
    return held
