"""Why the tail is slow: the difference between a slow and a typical request, split without a remainder.

Owns the split. The tail is the Harrell-Davis quantile, a weighted mean of requests, so that it splits over
the ledger exactly; the typical request is the Harrell-Davis median or, where the median is slow itself, the
mean of the faster half. A percentile that the sample cannot carry is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tailscope_analyzer._causes import find_causes
from tailscope_analyzer._changes import find_changes
from tailscope_analyzer._effects import find_effects
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._evidence import Evidence, gather
from tailscope_analyzer._mix import mix_note, split_mix
from tailscope_analyzer._notes import notes_on, notes_on_evidence
from tailscope_analyzer._parts import Part, Parts, counted_requests, split_requests
from tailscope_analyzer._quality import carries, is_enough, judge_quality
from tailscope_analyzer._quantile import Smoother, effective_size, quantile_interval, weighted_quantile
from tailscope_analyzer._report import (
    VERSION,
    Baseline,
    EdgeRow,
    Latency,
    LatencyIntervals,
    Mix,
    Report,
    ServiceRow,
    SlowRequest,
    StageRow,
    Window,
)
from tailscope_analyzer._source import Selection
from tailscope_analyzer._spread import Spread, spread_of
from tailscope_analyzer._whatif import default_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._traces import Traces

SLOWEST: Final = 10
LESSER: Final = (0.95, 0.9)
"""Where reasons are sought when there are too few requests for the percentile: slow is slow."""
LEAST_CALLEE: Final = 0.05
"""Of the largest; the sentence about a row does not list callees of less."""
ROUNDING: Final = 1e-13
"""Relative; a sum of some thousand products of 53-bit numbers is no more exact."""


def report(traces: Traces, *, percentile: float = 0.99, selection: Selection | None = None) -> Report:
    """Explain the tail of the requests.

    Args:
        traces: the requests and their ledger.
        percentile: which quantile is the tail, between 0.5 and 1, both exclusive.
        selection: what `traces` was selected by; it is repeated in `window`.

    Raises:
        InputError: the percentile is out of range.

    """
    if not 0.5 < percentile < 1:
        raise InputError(
            f"A percentile of {percentile:g} has no tail. Give one above 0.5 and below 1, such as 0.99."
        )
    split = split_requests(traces)
    n = len(split.duration_ms)
    chosen = selection or Selection()
    tail = _explain(split, percentile) if carries(split.weight, percentile) else None
    evidence = gather_evidence(traces, split, percentile, tail)
    causes = find_causes(evidence) if evidence else ()
    effects = find_effects(evidence) if evidence else None
    found = bool(causes or (effects and effects.rows))
    mix = _mix(traces, split, percentile, tail) if tail else None
    changes = find_changes(
        traces,
        split,
        percentile=percentile,
        excess_ms=tail.excess_ms if tail else 0.0,
        evidence=evidence,
    )
    return Report(
        version=VERSION,
        window=_window(traces, chosen),
        requests=round(float(split.weight.sum())),
        percentile=percentile,
        latency_ms=_latency(split),
        excess_ms=tail.excess_ms if tail else 0.0,
        baseline=tail.baseline if tail else Baseline("p50", None, "too few requests"),
        quality=judge_quality(traces, split, tail.smoothed if tail else {}, percentile),
        stages=tail.stages if tail else (),
        services=tail.services if tail else (),
        edges=tail.edges if tail else (),
        attributes=tuple(effect.to_dict() for effect in effects.rows) if effects else (),
        causes=tuple(cause.to_dict() for cause in causes),
        whatif=default_rows(traces, tail.stages) if tail else (),
        slowest=_slowest(split, tail.typical if tail else None),
        percentile_ms=weighted_quantile(split.duration_ms, split.weight, percentile) if n else None,
        notes=(
            *notes_on(traces.requests.filter("counted"), chosen),
            *([note] if (note := mix_note(mix)) else []),
            *(notes_on_evidence(evidence, percentile, found=found) if evidence else ()),
        ),
        latency_ci95_ms=_latency_intervals(split),
        excess_ci95_ms=tail.excess_ci95_ms if tail else None,
        attribute_search=effects.search() if effects else None,
        mix=mix,
        changes=changes.rows,
        timeline=changes.timeline,
    )


@dataclass(frozen=True, slots=True)
class Tail:
    """Hold the split of one percentile."""

    baseline: Baseline
    excess_ms: float
    excess_ci95_ms: tuple[float, float]
    smoothed: dict[float, float]
    """The quantiles that the split rests on, by q, in ms."""
    typical: Floats
    stages: tuple[StageRow, ...]
    services: tuple[ServiceRow, ...]
    edges: tuple[EdgeRow, ...]
    tail_weight: Floats
    """What each request of the split, in its order, weighs in the tail; sums to 1."""
    typical_weight: Floats


def gather_evidence(
    traces: Traces, split: Parts, percentile: float, tail: Tail | None = None
) -> Evidence | None:
    """Gather what reasons are found in; None where there are too few requests for any.

    They are of a lesser percentile where the requests cannot carry this one. `tail` is its split, if known.
    """
    asked = (percentile, *(q for q in LESSER if q < percentile))
    sought = next((q for q in asked if carries(split.weight, q)), None)
    if sought is None:
        return None
    explained = tail or _explain(split, sought)
    return gather(
        traces,
        split,
        tail_weight=explained.tail_weight,
        typical_weight=explained.typical_weight,
        percentile=sought,
        faster_half=explained.baseline.kind == "faster_half",
    )


def _mix(traces: Traces, split: Parts, percentile: float, tail: Tail) -> Mix | None:
    """Split the excess into what slow requests ask for and what they take beyond their like."""
    named = ("service", "operation", "model", "input_tokens")
    requests = counted_requests(traces, *named, "duration_ns", "trace_id").sort("duration_ns", "trace_id")
    return split_mix(
        requests.select(named),
        split.duration_ms,
        split.weight,
        tail.tail_weight,
        tail.typical_weight,
        percentile=percentile,
        faster_half=tail.baseline.kind == "faster_half",
    )


def _explain(split: Parts, percentile: float) -> Tail:
    median_n, tail_n = (effective_size(split.weight, q) for q in (0.5, percentile))
    smoothers = Smoother(median_n, 0.5), Smoother(tail_n, percentile)
    edges = np.r_[0.0, np.cumsum(split.weight) / split.weight.sum()]
    tail_weight = smoothers[1].exact(edges)
    median_weight = smoothers[0].exact(edges)
    typical_weight, kind, reason = _typical(split, median_weight, tail_weight)
    typical, median, tail = (weight @ split.matrix for weight in (typical_weight, median_weight, tail_weight))
    spread = spread_of(split, smoothers, tail_weight, faster_half=kind == "faster_half")
    dust_ms = ROUNDING * float(tail.sum())
    excess_ms = _without_dust(float((tail - typical).sum()), dust_ms)
    rows = _Rows(split.parts, typical, median, tail, spread, excess_ms, dust_ms)
    return Tail(
        baseline=Baseline(kind, float(typical.sum()), reason),
        excess_ms=excess_ms,
        excess_ci95_ms=rows.interval(list(range(len(split.parts)))),
        smoothed={percentile: float(tail.sum())} | ({0.5: float(typical.sum())} if kind == "p50" else {}),
        typical=typical,
        stages=rows.stages(),
        services=rows.services(),
        edges=rows.edges(),
        tail_weight=tail_weight,
        typical_weight=typical_weight,
    )


def _typical(
    split: Parts, median_weight: Floats, tail_weight: Floats
) -> tuple[Floats, Literal["p50", "faster_half"], str]:
    """Choose the typical request, as weights over the requests, and say why."""
    duration = split.duration_ms
    half = split.weight * (duration <= weighted_quantile(duration, split.weight, 0.5))
    half = half / half.sum()
    median, tail, faster = (float(w @ duration) for w in (median_weight, tail_weight, half))
    if tail - median < median - faster:
        reason = (
            f"the median request itself is slow: it is {median - faster:.1f} ms above the mean of the faster "
            f"half, the tail only {tail - median:.1f} ms above the median"
        )
        return half, "faster_half", reason
    return median_weight, "p50", "the tail adds more than the median carries"


@dataclass(frozen=True, slots=True)
class _Rows:
    """Make the report's rows: sums of parts, with intervals of the same sums."""

    parts: list[Part]
    typical: Floats
    median: Floats
    tail: Floats
    spread: Spread
    excess_ms: float
    dust_ms: float

    def stages(self) -> tuple[StageRow, ...]:
        rows: list[StageRow] = []
        for (service, stage, category), columns in self._grouped(lambda p: (p.service, p.stage, p.category)):
            excess = self._excess(columns)
            typical, tail = float(self.typical[columns].sum()), float(self.tail[columns].sum())
            interval = self.interval(columns)
            rows.append(
                StageRow(
                    service=service,
                    stage=stage,
                    category=category,
                    typical_ms=typical,
                    tail_ms=tail,
                    excess_ms=excess,
                    share=self._share(excess),
                    ci95_ms=interval,
                    median_ms=float(self.median[columns].sum()),
                    callees=self._callees(columns),
                )
            )
        return tuple(sorted(rows, key=lambda row: -row.excess_ms))

    def services(self) -> tuple[ServiceRow, ...]:
        rows = [
            ServiceRow(
                service, self._excess(columns), self._share(self._excess(columns)), self.interval(columns)
            )
            for (service,), columns in self._grouped(lambda p: (p.service,))
        ]
        return tuple(sorted(rows, key=lambda row: -row.excess_ms))

    def edges(self) -> tuple[EdgeRow, ...]:
        rows: list[EdgeRow] = []
        for (caller, callee), columns in self._grouped(lambda p: (p.service, p.callee)):
            if callee:
                excess = self._excess(columns)
                rows.append(EdgeRow(caller, callee, excess, self._share(excess)))
        return tuple(sorted(rows, key=lambda row: -row.excess_ms))

    def _callees(self, columns: list[int]) -> tuple[str, ...]:
        """Name who was called, without those that hardly matter; nobody at all where no call has a name."""
        excess = {self.parts[column].callee: self._excess([column]) for column in columns}
        if not any(excess):
            return ()
        least = LEAST_CALLEE * max(excess.values())
        return tuple(name for name in sorted(excess, key=lambda name: -excess[name]) if excess[name] >= least)

    def _grouped(self, key: Callable[[Part], tuple[str, ...]]) -> Iterable[tuple[tuple[str, ...], list[int]]]:
        groups: dict[tuple[str, ...], list[int]] = {}
        for column, part in enumerate(self.parts):
            groups.setdefault(key(part), []).append(column)
        return groups.items()

    def _excess(self, columns: list[int]) -> float:
        return _without_dust(float((self.tail[columns] - self.typical[columns]).sum()), self.dust_ms)

    def _share(self, excess_ms: float) -> float:
        return excess_ms / self.excess_ms if self.excess_ms else 0.0

    def interval(self, columns: list[int]) -> tuple[float, float]:
        """Return the 95 % interval of the excess of some parts together."""
        low, high = self.spread.interval(columns, float((self.tail[columns] - self.typical[columns]).sum()))
        return _without_dust(low, self.dust_ms), _without_dust(high, self.dust_ms)


def _without_dust(value_ms: float, dust_ms: float) -> float:
    """Return a difference, or 0 where it is what rounding leaves of two equal sums."""
    return 0.0 if abs(value_ms) <= dust_ms else value_ms


def _latency(split: Parts) -> Latency:
    duration, weight = split.duration_ms, split.weight
    if len(duration) == 0:
        return Latency(None, None, None, None, None, None, None)
    p50, p90, p95, p99, p999 = (weighted_quantile(duration, weight, q) for q in (0.5, 0.9, 0.95, 0.99, 0.999))
    return Latency(p50, p90, p95, p99, p999, float(duration[-1]), float(np.average(duration, weights=weight)))


def _latency_intervals(split: Parts) -> LatencyIntervals:
    duration, weight = split.duration_ms, split.weight
    found: dict[str, tuple[float, float]] = {}
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        if len(duration) and is_enough(effective_size(weight, q), q):
            found[name] = quantile_interval(duration, weight, q)
    return LatencyIntervals(**found)


def _window(traces: Traces, selection: Selection) -> Window:
    starts = traces.requests.filter("counted")["start_time"]
    start, end = starts.min(), starts.max()
    first, last = selection.since or start, selection.until or end
    return Window(_iso(first), _iso(last), selection.service, selection.operation, selection.where)


def _iso(when: object) -> str | None:
    from datetime import UTC, datetime

    if not isinstance(when, datetime):
        return None
    utc = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _slowest(split: Parts, typical: Floats | None) -> tuple[SlowRequest, ...]:
    """Name the slowest requests and the stage furthest beyond its typical time (or largest, without one)."""
    rows: list[SlowRequest] = []
    for row in range(len(split.duration_ms) - 1, max(len(split.duration_ms) - 1 - SLOWEST, -1), -1):
        parts = split.matrix[[row]].toarray()[0]
        beyond = parts - typical if typical is not None else parts
        by_stage: dict[str, float] = {}
        for part, excess in zip(split.parts, beyond.tolist(), strict=True):
            name = stage_label(part.service, part.stage, part.category)
            by_stage[name] = by_stage.get(name, 0.0) + excess
        top = max(by_stage, key=lambda name: by_stage[name]) if by_stage else ""
        rows.append(SlowRequest(str(split.trace_ids[row]), float(split.duration_ms[row]), top))
    return tuple(rows)


def stage_label(service: str, stage: str, category: str) -> str:
    """Return `service stage`, with the category where the stage does not say it."""
    told = {"self": "", "queue": ""}.get(category, f" ({category})")
    return f"{service} {stage}{told}"
