"""A run and its truth: the same requests with and without each fault.

Owns the order of the work. Every number comes from the seed: the run from it alone, each fault from it and
its place in the list.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._traces import Traces
from tailscope_analyzer.simulate._serve import serve
from tailscope_analyzer.simulate._service import Service
from tailscope_analyzer.simulate._spans import record
from tailscope_analyzer.simulate._world import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer.simulate._fault import Fault
    from tailscope_analyzer.simulate._recording import Blemish
    from tailscope_analyzer.simulate._serve import Served
    from tailscope_analyzer.simulate._world import World

STEPS_OF: Final = {
    "auth": ("auth",),
    "network": ("way_in", "accept", "connect", "way_out"),
    "preprocess": ("preprocess",),
    "dependency": ("attempts", "call"),
    "queue": ("queue",),
    "coldstart": ("load",),
    "inference.prefill": ("host", "prefill"),
    "inference.decode": ("decode",),
    "postprocess": ("postprocess",),
    "serialize": ("serialize",),
    "other": ("client", "blocked"),
}
"""Which steps of a run make up each stage; `dependency` is the time of calls to the peer."""


@dataclass(frozen=True, slots=True)
class Planted:
    """Tell what one fault costs: the run minus the same run without it, in ms per request."""

    cause: str
    fault: Fault
    ms: Floats
    """Of each request; negative where somebody else's wait makes way."""
    stage_ms: dict[str, Floats]
    """The same by stage."""

    @property
    def struck(self) -> Bools:
        """Tell which requests take longer for it, by more than a microsecond."""
        late: Bools = self.ms > 1e-3
        return late


@dataclass(frozen=True, slots=True)
class Truth:
    """Hold what no instrumentation sees."""

    duration_ms: Floats
    without_ms: Floats
    """The same requests without any fault."""
    stage_ms: dict[str, Floats]
    """Exact ms per request by stage; they sum to the duration."""
    planted: tuple[Planted, ...]

    def excess_ms(self, fault: int, *, percentile: float = 0.99) -> float:
        """Return by how many ms a fault raises the percentile."""
        with_it = self.duration_ms
        without = with_it - self.planted[fault].ms
        return float(np.quantile(with_it, percentile) - np.quantile(without, percentile))


@dataclass(frozen=True)
class Simulation:
    """Hold a run: spans as an analysis gets them, and the truth."""

    spans: pa.Table
    truth: Truth

    @cached_property
    def traces(self) -> Traces:
        """The spans as the analyzer takes them."""
        return Traces.from_spans(self.spans)


def run(
    seed: int,
    requests: int,
    *,
    service: Service | None = None,
    faults: Sequence[Fault] = (),
    blemishes: Sequence[Blemish] = (),
) -> Simulation:
    """Simulate so many requests to a service, with faults planted.

    Args:
        seed: any whole number from 0; the same one gives the same run.
        requests: how many, at least 1.
        service: what serves them.
        faults: what is wrong with it, in the order in which it is planted.
        blemishes: what is wrong with the recording.

    Raises:
        InputError: there are no requests, or a fault does not fit the service.

    """
    world, served, truth = _simulated(service or Service(), requests, seed, list(enumerate(faults)))
    spans = record(world, served)
    for number, one in enumerate(blemishes):
        spans = one.blemish(spans, np.random.default_rng([seed, 2, number]))
    return Simulation(spans, truth)


def stage_times(seed: int, requests: int, service: Service, faults: Sequence[Fault]) -> dict[str, Floats]:
    """Return the exact ms of a run by stage and nothing else: a million requests take half a minute."""
    return _stages(serve(_world(service, requests, seed, list(enumerate(faults)))))


def _simulated(
    service: Service, requests: int, seed: int, faults: list[tuple[int, Fault]]
) -> tuple[World, Served, Truth]:
    if requests < 1:
        raise InputError(f"{requests} requests cannot be simulated. Give at least 1.")
    world = _world(service, requests, seed, faults)
    served = serve(world)
    planted: list[Planted] = []
    for number, fault in faults:
        without = serve(_world(service, requests, seed, [one for one in faults if one[0] != number]))
        stages = {
            name: ms - other
            for (name, ms), other in zip(_stages(served).items(), _stages(without).values(), strict=True)
        }
        ms = served.duration_ms - without.duration_ms
        planted.append(Planted(fault.cause(world), fault, ms, stages))
    healthy = serve(_world(service, requests, seed, [])) if faults else served
    return world, served, Truth(served.duration_ms, healthy.duration_ms, _stages(served), tuple(planted))


def _world(service: Service, requests: int, seed: int, faults: list[tuple[int, Fault]]) -> World:
    world = draw(service, requests, seed)
    for number, fault in faults:
        fault.plant(world, np.random.default_rng([seed, 1, number]))
    return world


def _stages(served: Served) -> dict[str, Floats]:
    return {stage: np.sum([served.took(step) for step in steps], axis=0) for stage, steps in STEPS_OF.items()}
