"""Which settled traces are sealed and which are let go, and how many each that stays stands for.

Owns the policy: slow, failed and rare traces stay, of the rest a share by a hash of the trace id. The hash is
independent of all that the rules look at, so that sums weighted by 1 / inclusion probability are unbiased
whatever the rules say. Deletes nothing, knows no store, and asks no clock but the one that it is given.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tailscope_collector._counters import Counters
from tailscope_collector._sampling._chance import chance
from tailscope_collector._sampling._recent_counts import RecentCounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    import numpy.typing as npt

    from tailscope_collector._arrow import Bools, Column, Int64s
    from tailscope_collector._settings import Settings

    Floats = npt.NDArray[np.float64]

SERVER_ERROR: Final = 500
"""The HTTP status from which a request failed, as reports count it."""

LEAST_BEYOND: Final = 3
"""Requests that must lie beyond a percentile before it is used: 300 for the 99th. Until then all are kept."""

STEP: Final = 4_096
"""Traces between two looks at the history: a first large segment must not be kept whole for want of one."""

PER_OCTAVE: Final = 16
"""Buckets by which latency doubles: a threshold is exact to 4.4 %."""

SHORTEST_LOG2: Final = 10
LONGEST_LOG2: Final = 47
"""From a microsecond to a day and a half; the first and the last bucket take what is beyond."""

RULES: Final = ("always", "unjudged", "failed", "slow", "learning", "rare", "rest")
"""Why a trace is kept, the first that holds."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Say what is kept when traces are sealed."""

    rest: float = 1.0
    """Share of the traces that no rule keeps; 1 keeps all of them, and then nothing is sampled."""
    slow_percentile: float = 99.0
    """Traces above this percentile of their service and operation are kept; 0 is no such rule."""
    slow_ms: float = 0.0
    """Traces that took at least so long are kept; 0 is no such rule."""
    rare: int = 10
    """Traces of a service, operation and version that was seen less often in the window are kept."""
    window_s: float = 3_600.0
    """How far back "seen" and percentiles reach: one to two windows."""

    def __post_init__(self) -> None:
        if not 0 < self.rest <= 1:
            raise ValueError(
                f"The share of the rest is {self.rest}; it must be above 0 (what is never kept cannot be "
                "counted) and at most 1."
            )

    @classmethod
    def of(cls, settings: Settings) -> Policy:
        """Return the policy that the collector was started with."""
        return cls(
            rest=settings.sample_rest,
            slow_percentile=settings.sample_slow_percentile,
            slow_ms=settings.sample_slow_ms,
            rare=settings.sample_rare,
            window_s=settings.sample_window_s,
        )

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever let go."""
        return self.rest >= 1


class TailSampling:
    """Decides on settled traces; remembers latencies and counts of earlier ones. One call at a time.

    A new one knows nothing, and keeps every trace of an operation until it has seen enough of them.
    """

    def __init__(
        self, policy: Policy, counters: Counters | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.policy = policy
        self._counters = counters or Counters()
        buckets = (LONGEST_LOG2 - SHORTEST_LOG2) * PER_OCTAVE
        self._latencies = RecentCounts(buckets=buckets, window_s=policy.window_s, clock=clock)
        self._kinds = RecentCounts(buckets=1, window_s=policy.window_s, clock=clock)

    def decide(
        self, requests: pa.Table, *, always: AbstractSet[str] = frozenset()
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
        """Return which traces are kept, and 1 / inclusion probability of each.

        Args:
            requests: the columns of request_rows, one row per settled trace; a column `trace_state` with that
                of the entry span is used where it is there.
            always: trace ids that must stay, whatever the rules say.

        """
        length = requests.num_rows
        if self.policy.keeps_all or not length:
            return np.ones(length, dtype=np.bool_), np.ones(length)
        rows = requests.combine_chunks()
        reasons = _certain(rows, always)
        latency = _duration_ns(rows)
        operations, kinds = (
            _groups(rows, ("service", "operation")),
            _groups(rows, ("service", "operation", "version")),
        )
        reasons["slow"] = (self.policy.slow_ms > 0) & (latency >= self.policy.slow_ms * 1e6)
        reasons |= {rule: np.zeros(length, dtype=np.bool_) for rule in ("learning", "rare")}
        order = np.argsort(_integers(rows, "start_unix_nano"), kind="stable")
        for at in (order[begin : begin + STEP] for begin in range(0, length, STEP)):
            slow, learning = self._judge_latency(operations, latency, at)
            reasons["slow"][at] |= slow
            reasons["learning"][at] = learning
            reasons["rare"][at] = self._is_rare(kinds, at)
        return self._verdict(rows, reasons)

    def _judge_latency(self, operations: _Groups, latency: Floats, at: Int64s) -> tuple[Bools, Bools]:
        """Tell which traces are slow for their operation, and of which operation too few were seen."""
        if not self.policy.slow_percentile:
            return np.zeros(len(at), dtype=np.bool_), np.zeros(len(at), dtype=np.bool_)
        names, group = np.unique(operations.codes[at], return_inverse=True)
        places = self._latencies.places_of([operations.names[code] for code in names.tolist()])
        limit, enough = self._latencies.quantile(
            places, self.policy.slow_percentile / 100, least_beyond=LEAST_BEYOND
        )
        bucket, timed = _bucket(latency[at]), ~np.isnan(latency[at])
        self._latencies.add(places[group][timed], bucket[timed])
        return (bucket > limit[group]) & enough[group] & timed, ~enough[group]

    def _is_rare(self, kinds: _Groups, at: Int64s) -> Bools:
        """Tell which traces are among the first `rare` of their service, operation and version."""
        names, group = np.unique(kinds.codes[at], return_inverse=True)
        places = self._kinds.places_of([kinds.names[code] for code in names.tolist()])
        place = places[group]
        before = self._kinds.seen(places)[group] + _place_among_equals(place)
        self._kinds.add(place, np.zeros(len(place), dtype=np.int64))
        rare: Bools = before < self.policy.rare
        return rare

    def _verdict(self, rows: pa.Table, reasons: dict[str, Bools]) -> tuple[Bools, Floats]:
        rest = chance(_column(rows, "trace_id"), _trace_states(rows)) >= 1 - self.policy.rest
        certain = np.zeros(rows.num_rows, dtype=np.bool_)
        for rule in RULES[:-1]:
            self._count(rule, reasons[rule] & ~certain)
            certain |= reasons[rule]
        self._count(RULES[-1], rest & ~certain)
        return certain | rest, np.where(certain, 1.0, 1 / self.policy.rest)

    def _count(self, rule: str, kept: Bools) -> None:
        self._counters.add("traces_kept_total", int(kept.sum()), reason=rule)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Hold the distinct names of some rows: row i is of names[codes[i]]."""

    codes: Int64s
    names: list[str]


def _certain(rows: pa.Table, always: AbstractSet[str]) -> dict[str, Bools]:
    """Return the rules that look at one trace alone."""
    arrow: Any = pyarrow.compute
    named: Bools = arrow.is_in(_column(rows, "trace_id"), value_set=pa.array(sorted(always), pa.string()))
    status, http = _column(rows, "status"), _column(rows, "http_status")
    failed = arrow.or_kleene(arrow.equal(status, "error"), arrow.greater_equal(http, SERVER_ERROR))
    counted = arrow.and_kleene(_column(rows, "counted"), arrow.is_valid(_column(rows, "duration_ns")))
    return {
        "always": _bools(named),
        "failed": _bools(arrow.fill_null(failed, False)),
        "unjudged": ~_bools(arrow.fill_null(counted, False)),
    }


def _groups(rows: pa.Table, columns: tuple[str, ...]) -> _Groups:
    arrow: Any = pyarrow.compute
    texts = [arrow.fill_null(_column(rows, name).cast(pa.string()), "") for name in columns]
    # A NUL between the parts: no service or operation is told from another by where its name ends.
    coded = arrow.binary_join_element_wise(*texts, "\0").dictionary_encode()
    return _Groups(coded.indices.cast(pa.int64()).to_numpy(), cast("list[str]", coded.dictionary.to_pylist()))


def _bucket(latency_ns: Floats) -> Int64s:
    """Return the bucket of each duration; one that is unknown or not positive is in the first."""
    positive = np.where(latency_ns > 1, latency_ns, 1.0)
    bucket: Int64s = np.floor((np.log2(positive) - SHORTEST_LOG2) * PER_OCTAVE).astype(np.int64)
    highest = (LONGEST_LOG2 - SHORTEST_LOG2) * PER_OCTAVE - 1
    return np.clip(bucket, 0, highest)


def _place_among_equals(values: Int64s) -> Int64s:
    """Return for each value how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
    place = np.empty(len(values), dtype=np.int64)
    place[order] = np.arange(len(values)) - np.repeat(begins, np.diff(np.r_[begins, len(values)]))
    return place


def _duration_ns(rows: pa.Table) -> Floats:
    """Return durations as floats; NaN where a trace has none."""
    duration: Floats = _column(rows, "duration_ns").cast(pa.float64()).to_numpy(zero_copy_only=False)
    return duration


def _integers(rows: pa.Table, name: str) -> Int64s:
    numbers: Int64s = _column(rows, name).fill_null(0).to_numpy(zero_copy_only=False)
    return numbers


def _trace_states(rows: pa.Table) -> Column | None:
    return _column(rows, "trace_state") if "trace_state" in rows.column_names else None


def _column(rows: pa.Table, name: str) -> Column:
    """Return a column as one array; the table's chunks were combined and it has rows."""
    column: Any = rows.column(name)
    return column.chunk(0)


def _bools(column: Column) -> Bools:
    values: Bools = column.to_numpy(zero_copy_only=False)
    return values
