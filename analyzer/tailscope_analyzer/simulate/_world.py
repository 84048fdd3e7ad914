"""The random numbers of a run, and what faults change about it.

Owns `World`: arrays with one entry per request, in order of arrival, that are drawn once from the seed. A
fault changes them before anything is served, with random numbers of its own: without it all others stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tailscope_analyzer.simulate._traffic import daily, draw_arrivals, draw_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer.simulate._serve import Served
    from tailscope_analyzer.simulate._service import Service
    from tailscope_analyzer.simulate._speed import Spell

WORK: Final = (
    "client", "auth", "way_in", "accept", "preprocess", "connect", "attempts", "call", "load", "host",
    "prefill", "decode", "postprocess", "serialize", "way_out",
)  # fmt: skip
"""What a request consists of, besides waiting."""
ACCEPT_MS: Final = 0.05
"""Of the processor, before a server opens its span: a process that stands still does not even do this."""


@dataclass(frozen=True, slots=True)
class Event:
    """Put an event at the end of the spans of some requests."""

    span: str
    struck: Bools
    name: str
    attributes: dict[str, Any]
    """One value per request, by key."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Stop an instance, and let whoever runs there tell of it."""

    instance: int
    end_ms: float
    length_ms: float


@dataclass(frozen=True, slots=True)
class Load:
    """Add a trace of its own in which an instance loads something."""

    instance: int
    start_ms: float
    end_ms: float
    operation: str
    attributes: dict[str, str]


@dataclass
class World:
    """Hold a run before it is served; faults change it in place."""

    service: Service
    arrival_ms: Floats
    instance: Ints
    input_tokens: Ints
    output_tokens: Ints
    model: Ints
    version: Ints
    adapter: Ints
    shape: Ints
    work_ms: dict[str, Floats]
    cpu: list[Spell] = field(default_factory=list["Spell"])
    gpu: list[Spell] = field(default_factory=list["Spell"])
    idle: tuple[float, float] | None = None
    """After so many ms without work, an instance's GPU takes so many times as long."""
    load_operation: str = "model.load"
    """What the loads of the requests themselves are called."""
    waits_are_spans: bool = False
    """Whoever takes a request in records how long it waits for the client."""
    blocking: bool = False
    """An instance serves one request at a time, from its first stage to its last, and has no queue."""
    locks: set[str] = field(default_factory=set[str])
    """Stages that an instance lets one request into at a time."""
    states: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])
    """Attributes by span and key: a value per request (None says nothing), or what makes them afterwards."""
    events: list[Event] = field(default_factory=list[Event])
    pauses: list[Pause] = field(default_factory=list[Pause])
    loads: list[Load] = field(default_factory=list[Load])

    def __len__(self) -> int:
        return len(self.arrival_ms)

    def state(self, span: str, key: str, values: Any | Callable[[Served], Any]) -> None:
        """Let the spans of one name carry an attribute."""
        self.states[span, key] = values

    @property
    def length_ms(self) -> float:
        """How long requests come."""
        return float(self.arrival_ms[-1]) if len(self) else 0.0


def draw(service: Service, n: int, seed: int) -> World:
    """Draw a healthy run."""
    rng = np.random.default_rng(seed)
    arrival_ms = draw_arrivals(service.traffic, n, service.per_s, rng)
    if service.swing and n:
        arrival_ms = daily(arrival_ms, service.swing)
    input_tokens = draw_tokens(service.traffic.input_tokens, n, rng)
    output_tokens = draw_tokens(service.traffic.output_tokens, n, rng)
    usual: dict[str, Any] = {
        "auth": service.auth_ms,
        "way_in": service.network_ms if service.gateway else 0.0,
        "accept": ACCEPT_MS,
        "preprocess": service.preprocess_ms,
        "call": service.call_ms,
        "host": service.host_ms,
        "prefill": service.fixed_ms + service.input_token_ms * input_tokens,
        "decode": service.output_token_ms * output_tokens,
        "postprocess": service.postprocess_ms,
        "serialize": service.serialise_ms,
        "way_out": service.network_ms if service.gateway else 0.0,
    }
    work_ms = {name: rng.lognormal(0.0, service.spread, n) * usual.get(name, 0.0) for name in WORK}
    world = World(
        service=service,
        arrival_ms=arrival_ms,
        instance=rng.integers(0, service.instances, n),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        model=rng.integers(0, service.models, n),
        version=rng.integers(0, service.versions, n),
        adapter=popular(service.adapters, n, rng),
        shape=popular(service.shapes, n, rng),
        work_ms=work_ms,
    )
    # Larger models are slower: the second takes twice as long as the first.
    for name in ("prefill", "decode"):
        world.work_ms[name] *= 1.0 + world.model
    return world


def popular(kinds: int, n: int, rng: np.random.Generator) -> Ints:
    """Draw kinds of which the k-th is asked for 1/k as often as the first."""
    if not kinds:
        return np.zeros(n, dtype=np.int64)
    share = 1.0 / np.arange(1, kinds + 1)
    return rng.choice(kinds, n, p=share / share.sum()).astype(np.int64)
