"""Which keys make up a stage, a service or an edge, and how much of a gap is whose.

Owns the columns that keys are summed by. Every key is wholly of one stage; of services, a gap's time is
divided between its two ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tailscope_analyzer._compare._edge_model import Side, split_edges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._compare._matching import Matched
    from tailscope_analyzer._compare._population import Key

Name = TypeVar("Name")


@dataclass(frozen=True, slots=True)
class Groups:
    """Hold names and columns: `column[k, g]` is the part of key k that is group g's."""

    stages: tuple[list[tuple[str, str, str]], Floats]
    """By service, stage and category."""
    services: list[str]
    own: Floats
    egress: Floats
    ingress: Floats
    edges: tuple[list[tuple[str, str]], Floats]
    """By caller and callee; a key that is no gap between two services is of none."""
    sides: dict[tuple[str, str], Side]

    @property
    def of_services(self) -> Floats:
        """All of a key's time, by service."""
        return self.own + self.egress + self.ingress


def group_keys(keys: list[Key], matched: Matched) -> Groups:
    """Group the keys; a gap is divided by how much slower a call became on this and neighbouring edges."""
    edge_of = [(key.service, key.callee) if key.category == "gap" and key.callee else None for key in keys]
    edges = _grouped(edge_of)
    slower, calls = matched.slower_ms @ edges[1], matched.candidate_calls @ edges[1]
    each = np.divide(slower, calls, out=np.zeros_like(slower), where=calls > 0)
    sides = split_edges(dict(zip(edges[0], each.tolist(), strict=True)))
    services = sorted({key.service for key in keys} | {callee for _, callee in edges[0]})
    number = {name: at for at, name in enumerate(services)}
    own, egress, ingress = (np.zeros((len(keys), len(services))) for _ in range(3))
    for at, (key, edge) in enumerate(zip(keys, edge_of, strict=True)):
        if edge is None:
            own[at, number[key.service]] = 1.0
        else:
            egress[at, number[edge[0]]] = sides[edge].caller_share
            ingress[at, number[edge[1]]] = 1 - sides[edge].caller_share
    stages = _grouped([(key.service, key.stage, key.category) for key in keys])
    return Groups(stages, services, own, egress, ingress, edges, sides)


def _grouped(names: Sequence[Name | None]) -> tuple[list[Name], Floats]:
    """Return the distinct names and which keys are of each; a key without a name is of none."""
    numbers = {name: at for at, name in enumerate(dict.fromkeys(name for name in names if name is not None))}
    group = np.zeros((len(names), len(numbers)))
    for at, name in enumerate(names):
        if name is not None:
            group[at, numbers[name]] = 1.0
    return list(numbers), group
