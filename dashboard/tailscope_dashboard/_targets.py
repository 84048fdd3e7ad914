"""What latency should be: a target for the p99, one of the usual or the reader's own, kept in the URL.

Owns the presets and the words by which a percentile is held against a target. Draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures

PRESETS: Final = {"real-time": 50.0, "voice": 100.0, "recommendation": 200.0}
"""Latency in ms that people accept (guide A), by the name in the URL."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a target is met: a word, and a colour and an icon that say the same."""

    word: str
    met: bool
    colour: Literal["green", "red"]
    icon: str


def read_target() -> float | None:
    """Return the target of the URL in ms; None where there is none, or none that can be read."""
    return target_ms(address.get(address.TARGET))


def target_ms(text: str | None) -> float | None:
    """Read a target: the name of a preset, or a number of milliseconds."""
    if not text:
        return None
    if text in PRESETS:
        return PRESETS[text]
    try:
        value = float(text.lower().removesuffix("ms").strip())
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def target_text(value: object) -> str | None:
    """Write a target for the URL: a preset by its name, else the number; None for what is no target."""
    text = str(value) if value else None
    ms = target_ms(text)
    if text is None or ms is None:
        return None
    return text if text in PRESETS else f"{ms:g}"


def label(text: str) -> str:
    """Name a target for the list of them."""
    ms = target_ms(text)
    shown = figures.MISSING if ms is None else f"{ms:g} ms"
    return f"{text.capitalize()}, {shown}" if text in PRESETS else shown


def judge(percentile_ms: float | None, target: float | None) -> Judgement | None:
    """Hold a percentile against a target; None where one of them is missing."""
    if percentile_ms is None or target is None:
        return None
    beyond = percentile_ms - target
    if beyond <= 0:
        return Judgement("meets the target", met=True, colour="green", icon=":material/check_circle:")
    word = f"{figures.milliseconds(beyond)} over target"
    return Judgement(word, met=False, colour="red", icon=":material/error:")
