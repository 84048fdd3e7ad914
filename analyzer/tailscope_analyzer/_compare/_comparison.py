"""The comparison: what became slower between two populations of requests, as plain frozen values.

Owns the fields of `compare --format json` (version 1) and the round trip through JSON. Computes nothing.
The difference splits without a remainder: `excess_ms` = `mix_ms` + the `excess_ms` of all stages, and of a
stage `excess_ms` = `slower_ms` + `calls_ms`. Services sum to what stages sum to. Rows have no slots, so that
`vars` makes a table of them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, cast

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._report import Latency, LatencyIntervals

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


@dataclass(frozen=True, slots=True)
class Side:
    """Describe one of the two populations; times are ISO 8601 in UTC, None without requests."""

    requests: int
    """How many requests there were: stored ones counted by what they stand for."""
    latency_ms: Latency
    latency_ci95_ms: LatencyIntervals = field(default_factory=LatencyIntervals)
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True)
class LatencyShift:
    """Hold how one number of the latency moved, whatever the reason; None where a side cannot carry it."""

    name: str
    """`p50`, `p90`, `p95`, `p99`, `p999` or `mean`."""
    baseline_ms: float | None
    candidate_ms: float | None
    excess_ms: float | None
    """Candidate minus baseline."""
    ci95_ms: tuple[float, float] | None
    significant: bool
    """The interval does not hold 0 (whether the change is large enough to matter is not asked here)."""


@dataclass(frozen=True)
class StageShift:
    """Hold what one stage and category adds to the difference, in ms, requests of like kind compared."""

    service: str
    stage: str
    category: str
    baseline_ms: float
    """With the candidate's mix of kinds."""
    candidate_ms: float
    excess_ms: float
    """Candidate minus baseline; `slower_ms` + `calls_ms`."""
    share: float
    """Of `like_for_like_ms`; 0 where that is 0."""
    ci95_ms: tuple[float, float]
    q_value: float
    """Chance of a claim like this where nothing changed, all stages considered (Benjamini-Hochberg)."""
    significant: bool
    """Certain enough (q at most 0.01) and large enough (5 % of the baseline's latency)."""
    slower_ms: float
    """Because the same work took longer."""
    calls_ms: float = 0.0
    """Because there was more of it in a request: calls that were repeated (N+1), or work that is new."""
    callees: tuple[str, ...] = ()
    """Of a gap or a dependency: who was called, the largest part of the excess first."""
    tail_ms: float | None = None
    """What it adds to `tail_excess_ms`; the stages sum to that."""


@dataclass(frozen=True)
class ServiceShift:
    """Hold what one service adds to the difference, in ms: its own time and its ends of its calls."""

    service: str
    excess_ms: float
    """`own_ms` + `egress_ms` + `ingress_ms`."""
    share: float
    ci95_ms: tuple[float, float]
    q_value: float
    significant: bool
    own_ms: float = 0.0
    """Time inside the service's spans, and of its calls to those that send no spans."""
    egress_ms: float = 0.0
    """Gaps of its calls that lie on its side."""
    ingress_ms: float = 0.0
    """Gaps of calls to it that lie on its side."""
    calls_ms: float = 0.0
    """Of the excess: because it was called more often in a request."""


@dataclass(frozen=True)
class EdgeShift:
    """Hold what lies between a caller and a callee: time of calls that no span of the callee covers."""

    caller: str
    callee: str
    excess_ms: float
    """`caller_ms` + `callee_ms`."""
    share: float
    ci95_ms: tuple[float, float]
    q_value: float
    significant: bool
    caller_ms: float
    """The part that the caller's other calls share: its egress."""
    callee_ms: float
    """The part that the callee's other callers share: its ingress."""
    tied: bool
    """Nothing tells the sides apart (one call alone is slower): the edge is named, and halved."""


@dataclass(frozen=True)
class CallShift:
    """Hold how often something was done in a request, and what the growth costs."""

    service: str
    """Who did it; of a call, the caller."""
    operation: str
    """The span's name; of a gap or dependency as the ledger spells it, `caller -> callee`."""
    category: str
    baseline_calls: float
    """Per request, with the candidate's mix of kinds."""
    candidate_calls: float
    calls_ms: float
    """More calls at the baseline's time per call."""
    slower_ms: float
    """What the calls took longer."""


@dataclass(frozen=True)
class MixShift:
    """Hold one kind of request: its share on either side and what that moved."""

    operation: str
    model: str | None
    input_tokens: str | None
    """Bucket such as `256-511`; None where requests say nothing of tokens."""
    services: tuple[str, ...]
    """Which services spent time on it."""
    baseline_share: float
    candidate_share: float
    mix_ms: float
    """What its larger or smaller share adds to the mean, in ms."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold every finding about what changed from a baseline to a candidate."""

    version: int
    percentile: float
    baseline: Side
    candidate: Side
    significant: bool
    """Some stage or service became slower by more than chance and 5 %. False is an answer: nothing found.

    Other kinds of requests (`mix_ms`) are no such claim.
    """
    verdict: str
    """The answer in one or two sentences."""
    excess_ms: float
    """Candidate minus baseline, of the mean request: a mean splits whatever the requests are."""
    ci95_ms: tuple[float, float] | None
    """None where one of the sides has a single request, or few are compared with typical ones."""
    mix_ms: float
    """The part that comes from other kinds of requests being asked for (operation, model, input tokens)."""
    like_for_like_ms: float
    """The rest: requests of the same kind became slower. Stages sum to it, and services."""
    tail_excess_ms: float | None = None
    """Candidate minus baseline, of the smoothed percentile; None where a side cannot carry it."""
    against: Literal["mean", "typical"] = "mean"
    """What the candidate's mean is compared with: the baseline's, or, where the candidate has few requests,
    that of the baseline's typical ones, the faster half of each kind."""
    improved: bool = False
    """Some stage or service became faster by more than chance and 5 %."""
    latency: tuple[LatencyShift, ...] = ()
    stages: tuple[StageShift, ...] = ()
    """The largest excess first."""
    services: tuple[ServiceShift, ...] = ()
    """The largest certain excess first: in ms, discounted while chance could make a good part of it."""
    edges: tuple[EdgeShift, ...] = ()
    calls: tuple[CallShift, ...] = ()
    """What is done more or less often, the largest cost first; empty where no spans could be counted."""
    mix: tuple[MixShift, ...] = ()
    notes: tuple[str, ...] = ()
    """What to know before reading on, a sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of JSON version 1."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the comparison as JSON; the same comparison gives the same text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Comparison:
        """Read what `to_json` wrote; raises InputError for anything else."""
        try:
            data: Any = json.loads(text)
            return _comparison(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"This is not a comparison of version {VERSION}: {error!r}.") from error


_ROWS: dict[str, type[Any]] = {
    "latency": LatencyShift,
    "stages": StageShift,
    "services": ServiceShift,
    "edges": EdgeShift,
    "calls": CallShift,
    "mix": MixShift,
}


def _comparison(data: Mapping[str, Any]) -> Comparison:
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']!r}")
    rows = {name: tuple(_row(kind, row) for row in data[name]) for name, kind in _ROWS.items()}
    sides = {name: _side(data[name]) for name in ("baseline", "candidate")}
    whole = _row(Comparison, {**data, **sides, **rows})
    return cast("Comparison", whole)


def _side(data: Mapping[str, Any]) -> Side:
    latency, intervals = _row(Latency, data["latency_ms"]), _row(LatencyIntervals, data["latency_ci95_ms"])
    return cast("Side", _row(Side, {**data, "latency_ms": latency, "latency_ci95_ms": intervals}))


def _row(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """Build one row from the fields it knows; a newer comparison may say more."""
    known = {each.name for each in fields(kind)}
    found = {name: value for name, value in data.items() if name in known}
    for name in [name for name, value in found.items() if isinstance(value, list)]:
        found[name] = tuple(found[name])
    return kind(**found)
