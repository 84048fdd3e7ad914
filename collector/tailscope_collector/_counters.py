"""What the collector counted since it started, and how Prometheus reads it.

Owns the names of `/metrics`. Counters only go up; gauges are asked when the page is. A page costs a copy of
the numbers under the lock, and what its gauges cost.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

COUNTERS: Final = {
    "requests_total": "Export requests received.",
    "request_bytes_total": "Bytes of export requests after decompression.",
    "requests_refused_total": "Export requests answered with an error, by reason, signal and transport.",
    "spans_received_total": "Spans in the export requests that could be decoded.",
    "spans_stored_total": "Spans committed.",
    "spans_rejected_total": "Spans refused inside accepted requests, by reason (invalid ids or times).",
    "spans_duplicate_total": "Spans that were stored already and were not stored again.",
    "spans_repaired_total": "Values of received spans that could not be kept as they were sent, by reason.",
    "spans_late_total": "Spans of traces whose rows had been made already (settled), or sealed (sealed).",
    "metric_points_received_total": "Data points in the metrics requests that could be decoded.",
    "metric_points_stored_total": "Data points committed.",
    "metric_points_rejected_total": "Data points refused inside accepted requests, by reason.",
    "metric_points_repaired_total": "Values of points that could not be kept as they were sent, by reason.",
    "metric_points_duplicate_total": "Data points that were stored already and were not stored again.",
    "metric_points_skipped_total": "Data points without a value, marked so by their sender.",
    "segments_sealed_total": "Segments sealed.",
    "segments_dropped_total": "Segments deleted because they were over the bounds of retention.",
    "spans_sealed_total": "Spans sealed into segments.",
    "spans_sampled_out_total": "Stored spans deleted at sealing, as the sampling asks.",
    "traces_sampled_out_total": "Traces deleted at sealing, as the sampling asks.",
    "traces_kept_total": "Traces kept at sealing while the rest is sampled, by the rule that kept them.",
    "seal_seconds_total": "Seconds spent sealing.",
    "upkeep_failed_total": "Attempts to seal or to delete that failed and are tried again.",
    "commits_total": "Transactions committed.",
    "commits_failed_total": "Transactions that failed; their senders were told to try again.",
    "commit_seconds_total": "Seconds spent in committed transactions.",
    "decode_seconds_total": "Seconds spent decoding.",
    "queries_total": "Queries answered.",
    "queries_failed_total": "Queries that ended in an error.",
    "query_seconds_total": "Seconds spent in queries.",
    "requests_denied_total": "Requests turned away before their body, by reason (token, host, head).",
    "connections_closed_total": "HTTP connections closed by the collector, by reason (too slow, no place).",
    "settled_traces_total": "Traces whose request and ledger rows were made or made again.",
    "settle_seconds_total": "Seconds spent making request and ledger rows.",
}

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BYTES: Final = tuple(float(1 << power) for power in range(10, 27, 2))

HISTOGRAMS: Final = {
    "ack_duration_seconds": (
        "From the receipt of an export request to its answer, which comes after the commit.",
        _SECONDS,
    ),
    "request_size_bytes": ("Size of export requests after decompression.", _BYTES),
    "commit_duration_seconds": ("Time of one committed transaction.", _SECONDS),
    "query_duration_seconds": ("Time of one query.", _SECONDS),
}

_SPREAD: Final = {
    "request_bytes_total": "request_size_bytes",
    "commit_seconds_total": "commit_duration_seconds",
    "query_seconds_total": "query_duration_seconds",
}
"""Counters whose amounts are also kept as a histogram."""

PREFIX: Final = "tailscope_collector_"

Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Histogram:
    counts: list[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class _Gauge:
    sentence: str
    read: Callable[[], float]
    labels: Labels
    kind: str


@dataclass(slots=True)
class Counters:
    """A set of counters, histograms and gauges; thread-safe."""

    _guard: threading.Lock = field(default_factory=threading.Lock)
    _values: dict[str, dict[Labels, float]] = field(init=False)
    _histograms: dict[str, dict[Labels, _Histogram]] = field(init=False)
    _raised_at: dict[str, float] = field(default_factory=dict[str, float])
    _gauges: dict[str, _Gauge] = field(default_factory=dict[str, _Gauge])

    def __post_init__(self) -> None:
        self._values = {name: {} for name in COUNTERS}
        self._histograms = {name: {} for name in HISTOGRAMS}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Raise one counter; raises KeyError where there is no such counter."""
        key = _key(labels)
        with self._guard:
            values = self._values[name]
            values[key] = values.get(key, 0.0) + amount
            self._raised_at[name] = time.monotonic()
            if name in _SPREAD:
                self._observe(_SPREAD[name], amount, ())

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put one value into a histogram; raises KeyError where there is no such histogram."""
        with self._guard:
            self._observe(name, value, _key(labels))

    def value(self, name: str, **labels: str) -> float:
        """Return a counter, summed over the labels that are not named."""
        wanted = set(labels.items())
        with self._guard:
            return sum(value for key, value in self._values[name].items() if wanted <= set(key))

    def seconds_since(self, name: str) -> float:
        """Return how long ago a counter was raised; infinity where it never was."""
        raised_at = self._raised_at.get(name)
        return math.inf if raised_at is None else time.monotonic() - raised_at

    def gauge(self, name: str, sentence: str, read: Callable[[], float]) -> None:
        """Register a value that is read when it is asked for."""
        self._gauges[PREFIX + name] = _Gauge(sentence, read, (), "gauge")

    def constant(self, name: str, sentence: str, **labels: str) -> None:
        """Register a 1 whose labels say something."""
        self._gauges[PREFIX + name] = _Gauge(sentence, lambda: 1.0, _key(labels), "gauge")

    def of_process(self, name: str, sentence: str, read: Callable[[], float]) -> None:
        """Register a value of this process under the name that Prometheus' clients give it."""
        kind = "counter" if name.endswith("_total") else "gauge"
        self._gauges[name] = _Gauge(sentence, read, (), kind)

    def as_dict(self) -> dict[str, list[dict[str, Any]]]:
        """Return the counters that are not zero as plain values, for JSON."""
        with self._guard:
            return {
                name: [
                    {"labels": dict(key), "value": value} for key, value in sorted(values.items()) if value
                ]
                for name, values in self._values.items()
                if any(values.values())
            }

    def prometheus(self) -> str:
        """Return everything in Prometheus' text format."""
        with self._guard:
            values = {name: sorted(found.items()) for name, found in self._values.items()}
            spreads = {
                name: [(key, list(one.counts), one.total) for key, one in sorted(found.items())]
                for name, found in self._histograms.items()
            }
        lines: list[str] = []
        for name, sentence in COUNTERS.items():
            lines += _head(PREFIX + name, sentence, "counter")
            lines += [_line(PREFIX + name, key, value) for key, value in values[name] or [((), 0.0)]]
        for name, (sentence, bounds) in HISTOGRAMS.items():
            lines += _head(PREFIX + name, sentence, "histogram")
            for key, counts, total in spreads[name] or [((), [0] * (len(bounds) + 1), 0.0)]:
                lines += _buckets(PREFIX + name, key, bounds, counts, total)
        for name, gauge in list(self._gauges.items()):
            lines += _read(name, gauge)
        return "\n".join(lines) + "\n"

    def _observe(self, name: str, value: float, key: Labels) -> None:
        bounds = HISTOGRAMS[name][1]
        spread = self._histograms[name].setdefault(key, _Histogram([0] * (len(bounds) + 1)))
        spread.counts[bisect_left(bounds, value)] += 1
        spread.total += value


def _key(labels: Mapping[str, str]) -> Labels:
    if not labels:
        return ()
    return tuple(sorted([item for item in labels.items() if item[1]]))


def _head(name: str, sentence: str, kind: str) -> list[str]:
    return [f"# HELP {name} {sentence}", f"# TYPE {name} {kind}"]


def _read(name: str, gauge: _Gauge) -> list[str]:
    """Ask a gauge; one that cannot answer (its file is gone) is left out, and the page is not."""
    try:
        value = gauge.read()
    except Exception as error:  # noqa: BLE001 - whatever it is, the other numbers matter more just then
        log.debug("%s cannot be read: %s", name, error)
        return []
    return [*_head(name, gauge.sentence, gauge.kind), _line(name, gauge.labels, value)]


def _buckets(name: str, key: Labels, bounds: Iterable[float], counts: list[int], total: float) -> list[str]:
    lines: list[str] = []
    below = 0
    for bound, count in zip([*bounds, math.inf], counts, strict=True):
        below += count
        lines.append(_line(f"{name}_bucket", (*key, ("le", _number(bound))), below))
    return [*lines, _line(f"{name}_sum", key, total), _line(f"{name}_count", key, below)]


def _line(name: str, key: Labels, value: float) -> str:
    labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in key)
    return f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    """Spell a value exactly: a counter of bytes passes nine digits in a minute."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
