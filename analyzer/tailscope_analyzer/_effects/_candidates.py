"""What is asked of requests: every value of a text, and a few cuts of every number, as numbered codes.

Owns which facts are attributes and which values are candidates, with the counts of each. Knows nothing of
latency: what is slow decides neither cuts nor which values are asked about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Bools, Floats, Ints

LEAST_HAVING: Final = 10
"""Requests with a value, at least: the p99 of 1,000 requests is ten of them."""
MOST_HAVING: Final = 0.95
"""Share of requests; what nearly all have explains nothing that some have."""
MOST_VALUES: Final = 100
"""Values of one attribute that are asked about, the most frequent ones."""
ID_SHARE: Final = 0.5
"""More distinct values than this share of the requests that carry one: it names requests."""
MOST_DISTINCT: Final = 8
"""A number of so few values is a kind (a batch size, a count of retries): each value is asked about too."""
CUTS: Final = tuple(0.5 / 1.5**step for step in range(10))
"""Shares of the requests that are cut off at either end of a number. Each is 1.5 times the next, so that
whatever cut is true, one of these has the same requests by 0.8 (Jaccard) or more."""
MOST_WHOLE: Final = 1e15
"""Larger numbers are no longer exact in 53 bits to the last whole digit that a reader would see."""
NOT_ATTRIBUTES: Final = frozenset({"ms", "event_ms", "event", "load"})
"""Facts that are parts of the latency, or that a longer request meets more of whatever made it long: causes
judge them."""
WHEN: Final = frozenset({"request:started_s", "request:arrived_s"})
TIMES: Final = re.compile(
    r"(^|[._:])(ms|us|ns|s|sec|secs|seconds|millis|milliseconds|micros|microseconds|nanos|nanoseconds"
    r"|time|duration|latency|elapsed)$",
    re.IGNORECASE,
)
A_TIME: Final = "a measured time is part of the latency that it would explain"
COUNTERS: Final = re.compile(r"(^|[._:])(\w*switches|page_faults(\.\w+)?|faults)$", re.IGNORECASE)
A_COUNTER: Final = "a counter that goes on while the request runs: longer ones count more"
NO_GAP: Final = "request:idle_ms"
"""The one time that passed before the request."""
HIGH_ONLY: Final = frozenset({NO_GAP, "request:inflight"})
"""No gap is another name of some in flight. Of `nth:` only few are asked about: many is a name of late."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Hold one attribute as a code per request, -1 where it is not known."""

    name: str
    code: Ints
    labels: tuple[str, ...]
    """Of a text: its values by code. Of a number: the least value of each code's range."""
    numeric: bool
    highs: tuple[str, ...] = ()
    """Of a number: the greatest value of each code's range."""
    also: tuple[str, ...] = ()
    """Other names of the same facts."""
    values: Floats | None = None
    """Of a number: the values themselves, NaN where not known."""
    ranges: Floats | None = None
    """Of a number: least and greatest value by code, two rows."""

    @property
    def names(self) -> frozenset[str]:
        """All names of the facts."""
        return frozenset({self.name, *self.also})


@dataclass(frozen=True, slots=True)
class Candidate:
    """Name one thing that a request may have."""

    attribute: Attribute
    side: str
    """`=`, `>=` or `<=`."""
    at: int
    """The code."""
    cut: float | None = None
    """Of a number: where exactly the side begins, if not where the code's range does."""

    @property
    def value(self) -> str:
        """The value as a reader sees it."""
        if self.cut is not None:
            return f"{self.side} {_written(self.cut)}"
        if self.side == "=":
            return self.attribute.labels[self.at]
        edge = self.attribute.labels if self.side == ">=" else self.attribute.highs
        return f"{self.side} {edge[self.at]}"

    def mask(self) -> Bools:
        """Tell which requests have it."""
        code, values = self.attribute.code, self.attribute.values
        having: Bools
        if self.cut is not None and values is not None:
            having = values >= self.cut if self.side == ">=" else values <= self.cut
        elif self.side == "=":
            having = code == self.at
        else:
            having = code >= self.at if self.side == ">=" else (code >= 0) & (code <= self.at)
        return having


def attributes_of(facts: pl.DataFrame) -> tuple[list[Attribute], list[tuple[str, str]]]:
    """Return the attributes worth asking about, and what was left out and why."""
    found: dict[bytes, Attribute] = {}
    left_out: list[tuple[str, str]] = []
    for series in facts.iter_columns():
        if series.name.partition(":")[0] in NOT_ATTRIBUTES or series.name in WHEN:
            continue
        made = _attribute(series)
        if isinstance(made, str):
            left_out += [(series.name, made)] if made else []
            continue
        key = made.code.tobytes() + "\0".join(made.labels).encode()
        same = found.get(key)
        found[key] = made if same is None else _also(same, made.name)
    return list(found.values()), left_out


def _also(same: Attribute, name: str) -> Attribute:
    return replace(same, also=(*same.also, name))


def _attribute(series: pl.Series) -> Attribute | str:
    """Return the attribute, or why it is none; an empty reason where there is nothing to tell apart."""
    known = series.drop_nulls()
    distinct = known.n_unique()
    if len(known) < LEAST_HAVING or (distinct < 2 and len(known) > MOST_HAVING * len(series)):
        return ""
    if series.dtype == pl.Boolean:
        code = np.where(series.fill_null(value=False).to_numpy(), 0, -1).astype(np.int64)
        return Attribute(series.name, code, ("true",), numeric=False)
    if series.dtype.is_numeric():
        return _number(series)
    if distinct > ID_SHARE * len(known):
        return f"an id: {distinct:,} values in {len(known):,} requests"
    return _text(series)


def _text(series: pl.Series) -> Attribute:
    counts = series.drop_nulls().value_counts(name="n").filter(pl.col("n") >= LEAST_HAVING)
    often = counts.sort(["n", series.name], descending=[True, False])[series.name].head(MOST_VALUES)
    code = series.replace_strict(
        often, pl.Series(np.arange(len(often))), default=-1, return_dtype=pl.Int64
    ).fill_null(-1)
    return Attribute(series.name, code.to_numpy(), tuple(often.to_list()), numeric=False)


def _number(series: pl.Series) -> Attribute | str:
    if TIMES.search(series.name) and series.name != NO_GAP:
        return A_TIME
    if COUNTERS.search(series.name):
        return A_COUNTER
    values = series.cast(pl.Float64).fill_null(np.nan).to_numpy()
    known = np.sort(values[np.isfinite(values)])
    if not len(known):
        return ""
    distinct = np.unique(known)
    # The least value of each range is one that occurs, so that a cut can be read as it is.
    cuts = distinct if len(distinct) <= MOST_DISTINCT else _cuts(known)
    edges = np.unique(np.r_[known[0], cuts])
    code = np.where(np.isfinite(values), np.searchsorted(edges, values, side="right") - 1, -1)
    last = np.searchsorted(known, edges[1:], side="left") - 1
    highs = np.r_[known[last], known[-1]]
    return Attribute(
        series.name,
        code.astype(np.int64),
        labels=tuple(map(_written, edges)),
        numeric=True,
        highs=tuple(map(_written, highs)),
        values=values,
        ranges=np.stack([edges, highs]),
    )


def _cuts(known: Floats) -> Floats:
    """Return the values at which ascending ones are cut, and the least few: a count starts with 1, 2, 3."""
    shares = np.array(CUTS)
    rank = (np.concatenate([shares, 1 - shares]) * len(known)).astype(np.int64)
    return np.unique(np.concatenate([known[rank], np.unique(known)[:MOST_DISTINCT]]))


def _written(value: float) -> str:
    """Write a number as it was sent: whole ones, such as bytes, with all their digits."""
    return f"{value:.0f}" if value == round(value) and abs(value) < MOST_WHOLE else f"{value:.6g}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Hold sums over the requests that have each candidate, in the order of the candidates."""

    having: Floats
    """How many requests, by weight."""
    stored: Ints
    """How many requests, as they are."""
    runs: Ints
    """In how many runs they come, by time."""


def candidates_of(attribute: Attribute, weight: Floats) -> tuple[list[Candidate], Counts]:
    """Return what may be asked about one attribute; nothing that too few or nearly all have."""
    size = len(attribute.labels)
    per_code = np.bincount(attribute.code + 1, minlength=size + 1)[1:]
    asked = [Candidate(attribute, side, at) for side, at in _asked(attribute)]
    stored = sums(per_code.astype(np.float64), asked)
    having = sums(per_request(attribute, weight), asked)
    enough = (stored >= LEAST_HAVING) & (having <= MOST_HAVING * weight.sum())
    keep = [n for n in np.flatnonzero(enough).tolist() if _new(asked[n])]
    asked = [asked[n] for n in keep]
    return asked, Counts(having[keep], stored[keep].astype(np.int64), _runs(attribute, asked))


def _asked(attribute: Attribute) -> list[tuple[str, int]]:
    size = len(attribute.labels)
    equal = [("=", at) for at in range(size)]
    high = [(">=", at) for at in range(1, size)]
    low = [("<=", at) for at in range(size - 1)]
    if not attribute.numeric:
        return equal
    if attribute.name in HIGH_ONLY:
        return high
    if attribute.name.startswith("nth:"):
        # The first ones are `first:KEY`.
        return [(side, at) for side, at in low if attribute.highs[at] != "1"]
    return (equal if size <= MOST_DISTINCT else []) + high + low


def _new(one: Candidate) -> bool:
    """Tell whether a cut is not merely another spelling of `= value`: the end ranges are."""
    size = len(one.attribute.labels)
    if one.attribute.name in HIGH_ONLY or one.attribute.name.startswith("nth:"):
        return True
    is_end = (one.side == "<=" and one.at == 0) or (one.side == ">=" and one.at == size - 1)
    return not (one.attribute.numeric and size <= MOST_DISTINCT and is_end)


def per_request(attribute: Attribute, value: Floats) -> Floats:
    """Return the sum of a per-request quantity by code."""
    size = len(attribute.labels)
    summed: Floats = np.bincount(attribute.code + 1, weights=value, minlength=size + 1)[1:].astype(np.float64)
    return summed


def sums(by_code: Floats, asked: Sequence[Candidate]) -> Floats:
    """Return sums over candidates from sums over codes, which are the last axis of both."""
    if not asked:
        return np.zeros((*by_code.shape[:-1], 0))
    until = np.cumsum(by_code, axis=-1)
    at = np.array([one.at for one in asked], dtype=np.int64)
    side = np.array([one.side for one in asked], dtype=np.str_)
    below, here = until[..., at], by_code[..., at]
    summed: Floats = np.where(
        side == "=", here, np.where(side == "<=", below, until[..., -1:] - below + here)
    )
    return summed


def _runs(attribute: Attribute, asked: list[Candidate]) -> Ints:
    """Return in how many runs the requests of each candidate come."""
    code, size = attribute.code, len(attribute.labels)
    previous = np.r_[-1, code[:-1]]
    begins = (code != previous) & (code >= 0)
    equal = np.bincount(code[begins], minlength=size)
    # A run of `>= at` begins where the code rises to it or beyond: from below at, to at or more.
    rises = code > previous
    step = np.zeros(size + 1, dtype=np.int64)
    np.add.at(step, np.maximum(previous[rises] + 1, 0), 1)
    np.add.at(step, code[rises] + 1, -1)
    above = np.cumsum(step)[:size]
    # A run of `<= at` begins where one enters the range 0..at: from above, or from what is not known.
    known = np.where(code >= 0, code, size)
    before = np.r_[size, known[:-1]]
    falls = known < before
    step = np.zeros(size + 1, dtype=np.int64)
    np.add.at(step, known[falls], 1)
    np.add.at(step, np.minimum(before[falls], size), -1)
    below = np.cumsum(step)[:size]
    by_side = {"=": equal, ">=": above, "<=": below}
    return np.array([by_side[one.side][one.at] for one in asked], dtype=np.int64)
