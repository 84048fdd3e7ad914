"""Requests to a language model to look at: OTLP in JSON, the same for the same seed.

A gateway asks a session store, a cache and a model service, which reads features of a database. Half-way
version 2 of the model replaces version 1: it is slower, starts cold, and looks the features up three times.
Load comes in waves; two GPUs send metrics. `python -m tests.dashboard.assistants URL [N]` sends N requests.
"""

from __future__ import annotations

import json
import math
import random
import sys
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final

from tests.dashboard.traffic import SCRIPT, START_NS

SECONDS: Final = 600.0
MODEL: Final = "assistant-7b"
COLD: Final = 12
"""Requests that meet version 2 while it is loaded."""
PER_POST: Final = 150
INTERNAL, SERVER, CLIENT = 1, 2, 3


@dataclass(slots=True)
class Traffic:
    """The spans of requests, by service."""

    rng: random.Random
    trace: str = ""
    spans: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])

    def add(
        self,
        service: str,
        name: str,
        kind: int,
        start_ms: float,
        length_ms: float,
        parent: str,
        **attributes: object,
    ) -> str:
        """Add a span and return its id; `__` in the name of an attribute stands for a dot."""
        made = f"{self.rng.getrandbits(64):016x}"
        start = START_NS + int(start_ms * 1e6)
        self.spans.setdefault(service, []).append(
            {
                "traceId": self.trace,
                "spanId": made,
                "parentSpanId": parent,
                "name": name,
                "kind": kind,
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(start + int(length_ms * 1e6)),
                "attributes": [pair(key.replace("__", "."), value) for key, value in attributes.items()],
                "status": {"code": 2} if attributes.get("error__type") else {},
            }
        )
        return made

    def call(
        self,
        caller: str,
        callee: str,
        name: str,
        start_ms: float,
        length_ms: float,
        gap_ms: float,
        parent: str,
    ) -> tuple[str, float]:
        """Add a call with its answering span; returns the id of that and when it began."""
        client = self.add(caller, name, CLIENT, start_ms, length_ms + gap_ms, parent)
        begun = start_ms + gap_ms / 2
        return self.add(callee, name, SERVER, begun, length_ms, client), begun


def post(url: str, requests: int = 900) -> None:
    """Send the requests and the metrics of the GPUs to a collector."""
    rng = random.Random(11)  # noqa: S311  the same traffic for the same seed
    starts = sorted(_start_s(rng) for _ in range(requests))
    for first in range(0, requests, PER_POST):
        traffic = Traffic(rng)
        for number in range(first, min(first + PER_POST, requests)):
            _request(traffic, number, starts[number], requests)
        _send(f"{url}/v1/traces", {"resourceSpans": [_resource(*each) for each in traffic.spans.items()]})
    _send(f"{url}/v1/metrics", {"resourceMetrics": [_gpu(rng, gpu) for gpu in range(2)]})


def _start_s(rng: random.Random) -> float:
    while True:
        at = rng.random() * SECONDS
        if rng.random() < _load(at):
            return at


def _load(at_s: float) -> float:
    return 0.2 + 0.8 * math.sin(at_s / SECONDS * 3 * math.pi) ** 2


def _request(traffic: Traffic, number: int, start_s: float, requests: int) -> None:
    rng, at = traffic.rng, start_s * 1e3
    traffic.trace = f"{rng.getrandbits(128):032x}"
    second, load = number >= requests // 2, _load(start_s)
    cold = 900.0 if second and number < requests // 2 + COLD else 0.0
    tokens = 8 + int(rng.expovariate(1 / 60))
    tpot_ms = rng.gammavariate(40, 0.31 if second else 0.24)
    queue_ms = rng.gammavariate(1.5, 4 + 60 * load**3)
    prefill_ms = rng.gammavariate(12, 3.0)
    decode_ms = tpot_ms * tokens / 4
    features_ms = [rng.gammavariate(6, 0.8) for _ in range(3 if second else 1)]
    inside_ms = queue_ms + cold + prefill_ms + decode_ms + sum(features_ms) + 4
    length_ms = inside_ms + 14
    failed = {"error__type": "OutOfMemory"} if number % 83 == 7 else {}
    cold_start = {"cold_start": True} if cold else {}
    entry = traffic.add(
        "gateway",
        "POST /chat",
        SERVER,
        at,
        length_ms,
        "",
        gen_ai__request__model=MODEL,
        model__version="2" if second else "1",
        gen_ai__response__time_to_first_chunk=(queue_ms + cold + prefill_ms + 12) / 1e3,
        tailscope__tpot_ms=tpot_ms / 4,
        gen_ai__usage__input_tokens=50 + int(rng.expovariate(1 / 300)),
        gen_ai__usage__output_tokens=tokens,
        user__note=SCRIPT,
        **cold_start,
        **failed,
    )
    traffic.call("gateway", "sessions", "GET /session", at + 1, rng.gammavariate(4, 0.5), 0.6, entry)
    traffic.add("gateway", "GET", CLIENT, at + 5, 1.2, entry, db__system__name="redis", peer__service="redis")
    model, now = traffic.call("gateway", "model", "generate", at + 8, inside_ms, 2.5, entry)
    for length in features_ms:
        lookup, begun = traffic.call("model", "features", "lookup", now, length, 0.8, model)
        traffic.add("features", "SELECT", CLIENT, begun + 0.3, length * 0.7, lookup, peer__service="postgres")
        now += length + 1
    traffic.add(
        "model",
        "queue",
        INTERNAL,
        now,
        queue_ms,
        model,
        tailscope__stage="queue",
        queue__depth=int(queue_ms // 60),
    )
    now += queue_ms
    if cold:
        traffic.add("model", "load weights", INTERNAL, now, cold, model, tailscope__stage="coldstart")
        now += cold
    traffic.add(
        "model",
        "forward",
        INTERNAL,
        now,
        prefill_ms + decode_ms,
        model,
        tailscope__stage="inference",
        gpu__time_ms=(prefill_ms + decode_ms) * rng.uniform(0.7, 0.95),
        batch__size=1 + min(15, int(queue_ms // 5)),
    )


def _gpu(rng: random.Random, number: int) -> dict[str, Any]:
    def points(value: float, noise: float) -> list[dict[str, Any]]:
        return [
            {
                "timeUnixNano": str(START_NS + at * 1_000_000_000),
                "asDouble": max(0.0, value * (0.5 + 0.5 * _load(at)) + rng.gauss(0, noise)),
                "attributes": [pair("hw.id", f"GPU-{number}"), pair("hw.type", "gpu")],
            }
            for at in range(0, int(SECONDS), 15)
        ]

    levels = (
        ("hw.gpu.utilization", "1", 0.97 - 0.25 * number, 0.01),
        ("hw.temperature", "Cel", 78.0, 0.8),
        ("gpu.clock_mhz", "MHz", 1755.0, 12.0),
        ("hw.power", "W", 640.0, 9.0),
    )
    gauges = [
        {"name": name, "unit": unit, "gauge": {"dataPoints": points(top, noise)}}
        for name, unit, top, noise in levels
    ]
    return {"resource": _named("model"), "scopeMetrics": [{"metrics": gauges}]}


def _resource(service: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    return {"resource": _named(service), "scopeSpans": [{"scope": {"name": "tailscope"}, "spans": spans}]}


def _named(service: str) -> dict[str, Any]:
    names = (("service.name", service), ("service.instance.id", f"{service}-0"), ("host.name", "gpu-1"))
    return {"attributes": [pair(key, value) for key, value in names]}


def pair(key: str, value: object) -> dict[str, Any]:
    """Write an attribute as OTLP has it in JSON."""
    if isinstance(value, bool):
        return {"key": key, "value": {"boolValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    if isinstance(value, float):
        return {"key": key, "value": {"doubleValue": value}}
    return {"key": key, "value": {"stringValue": str(value)}}


def _send(url: str, tree: dict[str, Any]) -> None:
    ask = urllib.request.Request(  # noqa: S310  a collector of the test
        url, data=json.dumps(tree).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(ask, timeout=30) as answer:  # noqa: S310
        assert json.load(answer) == {}


if __name__ == "__main__":
    post(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 900)
