"""What the collector counted since it started, and how Prometheus reads it.

Owns the names of `/metrics`. Counters only go up; gauges are asked when the page is.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTERS: Final = {
    "requests_total": "Export requests received.",
    "request_bytes_total": "Bytes of export requests after decompression.",
    "requests_refused_total": "Export requests answered with an error, by reason.",
    "spans_received_total": "Spans in the export requests that could be decoded.",
    "spans_stored_total": "Spans committed.",
    "spans_rejected_total": "Spans refused inside accepted requests (invalid ids or times).",
    "spans_duplicate_total": "Spans that were stored already and were not stored again.",
    "commits_total": "Transactions committed.",
    "commits_failed_total": "Transactions that failed; their senders were told to try again.",
    "commit_seconds_total": "Seconds spent in committed transactions.",
    "decode_seconds_total": "Seconds spent decoding.",
    "queries_total": "Queries answered.",
    "queries_failed_total": "Queries that ended in an error.",
    "query_seconds_total": "Seconds spent in queries.",
    "settled_traces_total": "Traces whose request and ledger rows were made or made again.",
    "settle_seconds_total": "Seconds spent making request and ledger rows.",
}

PREFIX: Final = "tailscope_collector_"


class Counters:
    """A set of counters and gauges; thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._values: dict[tuple[str, str], float] = {(name, ""): 0.0 for name in COUNTERS}
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def add(self, name: str, amount: float = 1, *, reason: str = "") -> None:
        """Raise one counter; `reason` becomes a label."""
        if name not in COUNTERS:
            raise KeyError(f"no such counter: {name}")
        with self._guard:
            self._values[name, reason] = self._values.get((name, reason), 0.0) + amount

    def value(self, name: str) -> float:
        """Return a counter, summed over its reasons."""
        with self._guard:
            return sum(value for (counter, _), value in self._values.items() if counter == name)

    def gauge(self, name: str, sentence: str, read: Callable[[], float]) -> None:
        """Register a value that is read when it is asked for."""
        self._gauges[name] = (sentence, read)

    def prometheus(self) -> str:
        """Return everything in Prometheus' text format."""
        lines: list[str] = []
        with self._guard:
            values = dict(self._values)
        for name, sentence in COUNTERS.items():
            lines += [f"# HELP {PREFIX}{name} {sentence}", f"# TYPE {PREFIX}{name} counter"]
            for (counter, reason), value in sorted(values.items()):
                if counter == name:
                    label = f'{{reason="{reason}"}}' if reason else ""
                    lines.append(f"{PREFIX}{name}{label} {_number(value)}")
        for name, (sentence, read) in self._gauges.items():
            lines += [
                f"# HELP {PREFIX}{name} {sentence}",
                f"# TYPE {PREFIX}{name} gauge",
                f"{PREFIX}{name} {_number(read())}",
            ]
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Spell a value exactly: a counter of bytes passes nine digits in a minute."""
    return str(int(value)) if float(value).is_integer() else repr(value)
