"""The data-quality light: may the reader trust these numbers? Owns the words for the report's `quality`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tailscope_dashboard import _figures as figures

if TYPE_CHECKING:
    from tailscope_analyzer import Report

COMPLETE_AT_ALL: Final = 0.90
"""Share of complete requests below which the light is red."""


@dataclass(frozen=True, slots=True)
class Light:
    """A colour, the word that says the same, and the sentences behind it."""

    colour: Literal["green", "orange", "red"]
    word: str
    icon: str
    reasons: tuple[str, ...]


def light(report: Report) -> Light:
    """Judge the data by the analyzer's verdict and the share of requests that arrived complete."""
    quality = report.quality
    reasons = tuple(_reasons(report))
    if quality.complete_share is not None and quality.complete_share < COMPLETE_AT_ALL:
        return Light("red", "Data: poor", ":material/error:", reasons)
    if quality.verdict != "ok" or quality.dropped or quality.skewed:
        return Light("orange", "Data: remarks", ":material/warning:", reasons)
    return Light("green", "Data: good", ":material/check_circle:", reasons)


def _reasons(report: Report) -> list[str]:
    quality = report.quality
    found = [] if quality.verdict == "ok" else [f"{quality.verdict[:1].upper()}{quality.verdict[1:]}."]
    if quality.complete_share is not None:
        found.append(f"{figures.share(quality.complete_share, digits=1)} of the requests arrived complete.")
    found.append(f"{figures.plural(quality.orphans, 'span')} whose parent never arrived.")
    if quality.dropped is not None:
        found.append(f"{figures.plural(quality.dropped, 'span')} dropped before reaching the store.")
    found.append(f"{figures.plural(quality.skewed, 'request')} with clocks that disagree.")
    if quality.clock_grain_ns:
        found.append(f"Clock grain: {figures.nanoseconds(quality.clock_grain_ns)}.")
    if quality.sampled:
        found.append(
            "Sampled: every figure is weighted by the inclusion probability of its trace. Of "
            f"{figures.plural(report.requests, 'request')} {figures.count(quality.stored)} are stored, "
            f"which tell as much about the percentile as {figures.count(quality.effective)} unsampled ones."
        )
    return found
