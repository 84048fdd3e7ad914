"""Sharing the time out: two causes never explain the same millisecond.

Owns the order in which claims take what the ledger measured. Direct evidence comes first, then the more
specific pattern, then the one that explains more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._causes._cause import Claim
    from tailscope_analyzer._evidence import Evidence


def in_turn(evidence: Evidence, claims: Iterable[Claim]) -> list[Claim]:
    """Return claims in the order in which they take their time."""
    return sorted(claims, key=lambda claim: _turn(evidence, claim))


def net(evidence: Evidence, ordered: Iterable[Claim]) -> list[Claim]:
    """Cut every claim to the milliseconds that are there and that no claim before it took."""
    left: dict[int, Floats] = {}
    taken: list[Claim] = []
    for claim in ordered:
        struck = struck_by(claim)
        ms = np.zeros_like(claim.ms)
        for at, column in enumerate(claim.columns):
            there = np.maximum(evidence.ms([column]), 0.0)
            left.setdefault(column, there)
            # What others took of a part was beyond the usual: of that, a leftover is what remains.
            wanted = claim.ms[:, at] - (there - left[column] if claim.leftover else 0.0)
            ms[:, at] = np.clip(wanted, 0.0, left[column])
            left[column] = left[column] - ms[:, at]
        taken.append(replace(claim, ms=ms, struck=struck))
    return taken


def struck_by(claim: Claim) -> Bools:
    """Return which requests a claim touches."""
    explained: Bools = claim.ms.sum(axis=1) > 0
    return claim.struck if len(claim.struck) else explained


def _turn(evidence: Evidence, claim: Claim) -> tuple[int, int, float, str, str]:
    direct = 0 if claim.support == "direct" else 1
    return direct, claim.rank, -evidence.excess(claim.ms.sum(axis=1)), claim.cause, claim.summary
