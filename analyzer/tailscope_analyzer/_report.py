"""The report: what a window of requests says about its tail, as plain frozen values.

Owns the fields of JSON version 1 and the round trip through JSON. Computes nothing; sentences and pictures
are made from it elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast

from tailscope_analyzer._change_rows import ChangeRow, Timeline, changes_from, timeline_from
from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


@dataclass(frozen=True, slots=True)
class Window:
    """Say which requests the report is about; times are ISO 8601 in UTC, None where there are no requests."""

    start: str | None
    end: str | None
    service: str | None
    operation: str | None
    where: str | None


@dataclass(frozen=True, slots=True)
class Latency:
    """Hold sample quantiles in ms, linear between neighbours (SQL's quantile_cont); None without requests."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    p999: float | None
    max: float | None
    mean: float | None


@dataclass(frozen=True, slots=True)
class LatencyIntervals:
    """Hold a 95 % interval in ms for each sample quantile; None where too few requests lie beyond it."""

    p50: tuple[float, float] | None = None
    p90: tuple[float, float] | None = None
    p95: tuple[float, float] | None = None
    p99: tuple[float, float] | None = None
    p999: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """Say what a typical request is: the smoothed median, or the mean of the faster half and why."""

    kind: Literal["p50", "faster_half"]
    ms: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Quality:
    """Say how far the data can be trusted; `dropped` is None while nobody has counted."""

    complete_share: float | None
    orphans: int
    dropped: int | None
    skewed: int
    clock_grain_ns: int | None
    sampled: bool
    verdict: str
    stored: int | None = None
    """Requests that are stored and count; fewer than the report's `requests` where they were sampled."""
    sampled_share: float | None = None
    """Stored requests by those that they stand for; 1 where nothing was sampled."""
    effective: float | None = None
    """How many unsampled requests would tell as much about the percentile."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """Hold what one stage and category adds to the tail, in ms; `share` is of the whole excess."""

    service: str
    stage: str
    category: str
    typical_ms: float
    tail_ms: float
    excess_ms: float
    share: float
    ci95_ms: tuple[float, float]
    median_ms: float | None = None
    """What the median request spends here: `typical_ms`, unless the baseline is the faster half."""
    callees: tuple[str, ...] = ()
    """Of a gap or a dependency: who was called, the largest part of the excess first; `` is nobody named."""


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """Hold what one service adds to the tail, in ms."""

    service: str
    excess_ms: float
    share: float
    ci95_ms: tuple[float, float]


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """Hold what lies between two parties: time of a call that no span of the callee covers.

    The callee is a service, or the peer that a caller names where nothing there sends spans.
    """

    caller: str
    callee: str
    excess_ms: float
    share: float


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """Name one of the slowest requests and what it spent most on beyond a typical request."""

    trace_id: str
    duration_ms: float
    top_stage: str


@dataclass(frozen=True, slots=True)
class AttributeSearch:
    """Say what was asked about attributes, whether or not anything was found."""

    tested: int
    """Values that were tested; the q-values are corrected for all of them."""
    left_out: tuple[dict[str, str], ...] = ()
    """Attributes that were not asked about: `attribute` and `reason`."""


@dataclass(frozen=True, slots=True)
class MixRow:
    """Hold one class of requests: how frequent it is, typically and in the tail, and what that adds."""

    service: str
    operation: str
    model: str
    """Empty where the requests name none; `any` in this and the other names takes in several."""
    input_tokens: str
    """A range of tokens, `256-511`; empty where nothing tells of tokens."""
    requests: int
    """Stored ones counted by what they stand for."""
    typical_ms: float
    """The median request of the class."""
    typical_share: float
    """Of the typical request: how much of it is of this class."""
    tail_share: float
    """Of the tail."""
    excess_ms: float
    """What its larger part in the tail adds; all classes together are `mix_ms`."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Split an excess: `mix_ms + within_ms` is all of it."""

    mix_ms: float
    """What the tail adds because its requests are of other classes than the typical ones."""
    within_ms: float
    """What it adds because they are slower than the median request of their own class."""
    share: float
    """`mix_ms` of the excess."""
    ci95_ms: tuple[float, float]
    """Of `mix_ms`, with the medians of the classes as they are."""
    rows: tuple[MixRow, ...]
    """The classes that add or take most, at most 20."""


@dataclass(frozen=True, slots=True)
class Report:
    """Hold every finding about the tail of a window of requests."""

    version: int
    window: Window
    requests: int
    """How many requests there were: stored ones counted by what they stand for."""
    percentile: float
    latency_ms: Latency
    excess_ms: float
    baseline: Baseline
    quality: Quality
    stages: tuple[StageRow, ...] = ()
    services: tuple[ServiceRow, ...] = ()
    edges: tuple[EdgeRow, ...] = ()
    attributes: tuple[dict[str, Any], ...] = ()
    causes: tuple[dict[str, Any], ...] = ()
    whatif: tuple[dict[str, Any], ...] = ()
    slowest: tuple[SlowRequest, ...] = ()
    percentile_ms: float | None = None
    """The sample quantile that `percentile` names, in ms."""
    notes: tuple[str, ...] = ()
    """What to know about the requests before reading on, a sentence each."""
    latency_ci95_ms: LatencyIntervals = LatencyIntervals()
    excess_ci95_ms: tuple[float, float] | None = None
    """A 95 % interval of `excess_ms`; None where there is no split."""
    attribute_search: AttributeSearch | None = None
    """What `attributes` are the findings of; None where there are too few requests to look."""
    mix: Mix | None = None
    """How much of the excess is what slow requests ask for; None with one kind of requests, or no split."""
    changes: tuple[ChangeRow, ...] = ()
    """What moved during the window and when, the most for the percentile first; empty where nothing did."""
    timeline: Timeline | None = None
    """The stages over time; None with too few requests for five bins."""

    @property
    def tail_ms(self) -> float | None:
        """The smoothed percentile that the parts sum to: typical plus excess."""
        return None if self.baseline.ms is None else self.baseline.ms + self.excess_ms

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of JSON version 1."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the report as JSON; the same report gives the same text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Report:
        """Read a report back; raises InputError when it is not one of version 1."""
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise InputError(f"This is not a report in JSON: {error}.") from error
        version = cast("dict[str, Any]", data).get("version") if isinstance(data, dict) else None
        if version != VERSION:
            raise InputError(f"A report of version {VERSION} was expected, not {version}.")
        try:
            return _report(cast("dict[str, Any]", data))
        except (KeyError, TypeError) as error:
            raise InputError(f"The report lacks or misplaces a field: {error}.") from error

    def to_text(self, *, width: int = 100, colour: bool = False) -> str:
        """Return the report for a terminal of `width` columns."""
        from tailscope_analyzer._report_text import report_text

        return report_text(self, width=width, colour=colour)

    def to_markdown(self) -> str:
        """Return the report as Markdown, for a ticket or a chat."""
        from tailscope_analyzer._report_markdown import report_markdown

        return report_markdown(self)

    def to_html(self) -> str:
        """Return the report as one HTML page that loads nothing."""
        from tailscope_analyzer._report_html import report_html

        return report_html(self)


def _report(data: Mapping[str, Any]) -> Report:
    return Report(
        version=data["version"],
        window=Window(**data["window"]),
        requests=data["requests"],
        percentile=data["percentile"],
        latency_ms=Latency(**data["latency_ms"]),
        excess_ms=data["excess_ms"],
        baseline=Baseline(**data["baseline"]),
        quality=_row(Quality, data["quality"]),
        stages=tuple(_row(StageRow, row) for row in data["stages"]),
        services=tuple(_row(ServiceRow, row) for row in data["services"]),
        edges=tuple(_row(EdgeRow, row) for row in data["edges"]),
        attributes=tuple(data["attributes"]),
        causes=tuple(data["causes"]),
        whatif=tuple(data["whatif"]),
        slowest=tuple(_row(SlowRequest, row) for row in data["slowest"]),
        percentile_ms=data.get("percentile_ms"),
        notes=tuple(data.get("notes", ())),
        latency_ci95_ms=_row(LatencyIntervals, data.get("latency_ci95_ms") or {}),
        excess_ci95_ms=_pair(data.get("excess_ci95_ms")),
        attribute_search=_search(data.get("attribute_search")),
        mix=_mix(data.get("mix")),
        changes=changes_from(data.get("changes") or ()),
        timeline=timeline_from(data.get("timeline")),
    )


def _search(data: Mapping[str, Any] | None) -> AttributeSearch | None:
    return None if data is None else cast("AttributeSearch", _row(AttributeSearch, data))


def _mix(data: Mapping[str, Any] | None) -> Mix | None:
    if data is None:
        return None
    return cast("Mix", _row(Mix, {**data, "rows": [_row(MixRow, row) for row in data["rows"]]}))


def _row(kind: Any, data: Mapping[str, Any]) -> Any:
    """Build one row from the fields it knows; a newer report may say more."""
    known = {field.name for field in fields(kind)}
    values = {name: value for name, value in data.items() if name in known}
    for name in [name for name, value in values.items() if isinstance(value, list)]:
        values[name] = tuple(values[name])
    return kind(**values)


def _pair(values: Any) -> tuple[float, float] | None:
    return None if values is None else (values[0], values[1])
