"""Windows of made-up requests, in which a test plants what it wants found: arrays in, a span table out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailscope_analyzer import SPANS_SCHEMA, Traces

if TYPE_CHECKING:
    import numpy.typing as npt

T0 = 1_735_689_600_123_456_789
USUAL_MS = {"auth": 1.0, "preprocess": 4.0, "queue": 0.3, "inference": 40.0, "postprocess": 2.0}


@dataclass
class Window:
    """Hold a window while a test changes it: ms by stage, attributes and events by stage or `entry`."""

    n: int
    start_ms: npt.NDArray[np.float64]
    ms: dict[str, npt.NDArray[np.float64]]
    attributes: dict[tuple[str, str], list[Any]] = field(default_factory=dict[tuple[str, str], "list[Any]"])
    events: dict[str, dict[int, tuple[str, dict[str, str]]]] = field(
        default_factory=dict[str, "dict[int, tuple[str, dict[str, str]]]"]
    )
    instances: list[str] = field(default_factory=list[str])
    others: list[dict[str, Any]] = field(default_factory=list["dict[str, Any]"])
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def some(self, share: float) -> npt.NDArray[np.bool_]:
        """Choose some requests at random."""
        return self.rng.random(self.n) < share

    def state(self, key: str, values: npt.NDArray[Any], on: str = "entry") -> None:
        """Let every request, or its span of a stage, carry an attribute."""
        self.attributes[on, key] = values.tolist()

    def traces(self) -> Traces:
        """Return the window as the analyzer takes it."""
        rows: list[dict[str, Any]] = [*self.others]
        for i in range(self.n):
            rows += self._request(i)
        return Traces.from_spans(pa.Table.from_pylist(rows, schema=SPANS_SCHEMA))

    def _request(self, i: int) -> list[dict[str, Any]]:
        at = T0 + round(float(self.start_ms[i]) * 1e6)
        begun, spans = at, list[dict[str, Any]]()
        for stage, ms in self.ms.items():
            length = round(float(ms[i]) * 1e6)
            spans.append(self._span(i, stage, begun, length))
            begun += length
        entry = self._span(i, "entry", at, begun - at)
        entry |= {"span_id": f"{i:x}e", "parent_span_id": None, "operation": "POST /predict", "stage": None}
        return [entry | {"kind": "server"}, *spans]

    def _span(self, i: int, stage: str, start: int, length: int) -> dict[str, Any]:
        event = self.events.get(stage, {}).get(i)
        named = [] if event is None else [{"name": event[0], "time_unix_nano": start + length}]
        return {
            "trace_id": f"{i:032x}",
            "span_id": f"{i:x}{stage}",
            "parent_span_id": f"{i:x}e",
            "service": "ranker",
            "instance": self.instances[i] if self.instances else "pod-0",
            "operation": stage,
            "kind": "internal",
            "stage": stage,
            "status": "unset",
            "start_unix_nano": start,
            "duration_ns": length,
            "attributes": [
                (key, str(values[i]))
                for (on, key), values in self.attributes.items()
                if on == stage and values[i] is not None
            ],
            "events": [one | {"attributes": list(event[1].items())} for one in named if event],
            "links": [],
        }

    def loading(self, start_ms: float, end_ms: float, operation: str, attributes: dict[str, str]) -> None:
        """Add a load of a trace of its own, on the only instance."""
        number = len(self.others)
        self.others.append(
            {
                "trace_id": f"load{number:028x}",
                "span_id": f"load{number}",
                "parent_span_id": None,
                "service": "ranker",
                "instance": "pod-0",
                "operation": operation,
                "kind": "internal",
                "stage": "coldstart",
                "start_unix_nano": T0 + round(start_ms * 1e6),
                "duration_ns": round((end_ms - start_ms) * 1e6),
                "attributes": list(attributes.items()),
                "events": [],
                "links": [],
            }
        )


def healthy(n: int = 600, *, seed: int = 7, every_ms: float = 80.0, spread: float = 0.12) -> Window:
    """Return a window in which nothing is wrong: log-normal noise in every stage, Poisson arrivals."""
    rng = np.random.default_rng(seed)
    ms = {stage: usual * rng.lognormal(0.0, spread, n) for stage, usual in USUAL_MS.items()}
    return Window(n, np.cumsum(rng.exponential(every_ms, n)), ms, rng=rng)
