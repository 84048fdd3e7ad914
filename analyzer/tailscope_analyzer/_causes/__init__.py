"""Why slow requests are slow: causes from a closed vocabulary, each with evidence, milliseconds and a fix.

Owns asking every detector and judging what they claim. Detectors explain time that the ledger measured; two
never explain the same millisecond, and "nothing" is an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope_analyzer._causes._cause import Cause, Claim, Detector, Fix, Proof
from tailscope_analyzer._causes._judge import judge
from tailscope_analyzer._causes._registry import detectors

if TYPE_CHECKING:
    from tailscope_analyzer._evidence import Evidence

__all__ = ["Cause", "Claim", "Detector", "Fix", "Proof", "detectors", "find_causes"]


def find_causes(evidence: Evidence) -> tuple[Cause, ...]:
    """Return what explains the excess of the tail, the largest share first."""
    every = detectors()
    claims = [claim for detector in every for claim in detector.detect(evidence)]
    return judge(evidence, claims, every)
