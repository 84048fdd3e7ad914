"""On which side of a call its gap lies: egress of the caller or ingress of the callee.

Owns the non-negative edge model. A service that is slow to send is so to all it calls, one that is slow to
accept or reply is so to all its callers: the excess per call of an edge is the caller's egress plus the
callee's ingress, neither negative, as few of them as explain it (L1). Where one edge alone is slower, nothing
tells its sides apart; then the model says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_analyzer._arrays import Floats, Ints

PENALTY: Final = 0.02
"""Of the largest excess per call: a side that would explain less than this is not worth naming."""
SWEEPS: Final = 500
CONVERGED: Final = 1e-9
ALONE: Final = 0.1
"""A side supports a claim when another of its edges has this part of the excess per call."""


@dataclass(frozen=True, slots=True)
class Side:
    """Hold how one edge's gap splits."""

    caller_share: float
    tied: bool
    """Nothing tells the sides apart."""


def split_edges(excess_per_call: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], Side]:
    """Split each edge (caller, callee) by its excess per call in ms; one that is no slower is halved."""
    edges: Sequence[tuple[str, str]] = sorted(excess_per_call)
    if not edges:
        return {}
    slower = np.array([max(excess_per_call[edge], 0.0) for edge in edges])
    callers, caller = np.unique([edge[0] for edge in edges], return_inverse=True)
    callees, callee = np.unique([edge[1] for edge in edges], return_inverse=True)
    largest = float(slower.max())
    if largest <= 0:
        return {edge: Side(0.5, tied=False) for edge in edges}
    egress, ingress = _solve(slower / largest, caller, callee, (len(callers), len(callees)))
    found: dict[tuple[str, str], Side] = {}
    for number, edge in enumerate(edges):
        one, other = float(egress[caller[number]]), float(ingress[callee[number]])
        share = one / (one + other) if one + other > 0 else 0.5
        found[edge] = Side(share, tied=_is_alone(number, slower, caller, callee))
    return found


def _solve(y: Floats, caller: Ints, callee: Ints, sizes: tuple[int, int]) -> tuple[Floats, Floats]:
    """Minimise half the squared misfit plus PENALTY times all sides, none negative, side by side."""
    egress, ingress = np.zeros(sizes[0]), np.zeros(sizes[1])
    calls = np.bincount(caller, minlength=sizes[0]), np.bincount(callee, minlength=sizes[1])
    for _ in range(SWEEPS):
        before = egress, ingress
        # Given the callees' part, the callers do not touch each other: each side is solved at once.
        rest = np.bincount(caller, y - ingress[callee], minlength=sizes[0])
        egress = np.maximum(rest - PENALTY, 0.0) / calls[0]
        rest = np.bincount(callee, y - egress[caller], minlength=sizes[1])
        ingress = np.maximum(rest - PENALTY, 0.0) / calls[1]
        moved = max(np.abs(egress - before[0]).max(), np.abs(ingress - before[1]).max())
        if moved < CONVERGED:
            break
    return egress, ingress


def _is_alone(number: int, slower: Floats, caller: Ints, callee: Ints) -> bool:
    """Tell whether neither end has another edge, or none of either end's is slower as well."""
    least = ALONE * slower[number]
    beside = np.arange(len(slower)) != number
    of_caller, of_callee = (
        slower[beside & (caller == caller[number])],
        slower[beside & (callee == callee[number])],
    )
    if slower[number] <= 0 or (of_caller >= least).any() or (of_callee >= least).any():
        return False
    # An end whose other edges are as before is cleared by them; with both cleared, or none, nothing tells.
    return bool(len(of_caller)) == bool(len(of_callee))
