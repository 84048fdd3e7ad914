"""The detectors, one for each cause of the vocabulary.

Owns the list. A module of detectors is imported when a report first asks for causes.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailscope_analyzer._causes._cause import Detector

MODULES: Final = (
    "_pauses",
    "_stalls",
    "_processor",
    "_gpu",
    "_firsts",
    "_adapters",
    "_blocking",
    "_batch_window",
    "_queues",
    "_calls",
    "_clients",
    "_groups",
    "_unattributed",
)
"""Each has `DETECTORS`, a tuple."""


@cache
def detectors() -> tuple[Detector, ...]:
    """Return every detector."""
    found: list[Detector] = []
    for name in MODULES:
        found.extend(import_module(f"tailscope_analyzer._causes.{name}").DETECTORS)
    return tuple(found)
