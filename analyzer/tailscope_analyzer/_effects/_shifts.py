"""How likely a pattern is where neighbours in time are alike: what shifts in time would make of it.

Owns tests for values and slowness that both come in runs. When a burst of slow requests meets a roll-out,
the requests are many and the coincidence is one: shifting one against the other keeps all runs, and shows how
often they meet by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import fft as scipy_fft
from scipy.special import ndtr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer._arrays import Bools, Floats

OVERSPREAD: Final = 1.5
"""Variance over that of values without order: scattered values stay below, but for chance."""
_fft: Any = scipy_fft


def overspread_p(marked: Bools, slow: Bools) -> float:
    """Return how likely so many hits of a scattered value are if order matters; 0 where it does not."""
    n, having, hit = len(slow), int(marked.sum()), int(slow.sum())
    counts = _counts(marked, _spectrum(slow))
    usual = having * hit / n * (1 - having / n) * (1 - hit / n)
    spread = float(counts.var())
    if spread <= OVERSPREAD * usual or not spread > 0:
        return 0.0
    deviations = (float(counts[0]) - float(counts.mean())) / float(np.sqrt(spread))
    return float(ndtr(-deviations))


def by_shifts_of_all(marked: Iterable[tuple[Bools, bool]], slow: tuple[Bools, Bools]) -> Floats:
    """Return for each of many values how likely any of them is to stand out as much by chance.

    All are shifted against the slow requests together, so that values that go with each other do not count
    as so many chances. Each is measured in standard deviations of its own shifts; the largest of all, shift
    by shift, is what one is held against. Source: Westfall and Young 1993, with shifts for permutations.

    Args:
        marked: the requests with each value, and which of the two kinds of slow it is held against.
        slow: the requests that are slow of each kind.

    """
    spectra = [_spectrum(one) for one in slow]
    largest = np.full(len(slow[0]), -np.inf)
    found: list[float] = []
    for mask, which in marked:
        counts = _counts(mask, spectra[which])
        spread = float(counts.std())
        beyond = (counts - counts.mean()) / spread if spread > 0 else np.zeros(len(counts))
        found.append(float(beyond[0]))
        np.maximum(largest, beyond, out=largest)
    ordered = np.sort(largest)
    # As far as rounding goes, a shift that does as well as no shift is as good.
    reached = np.searchsorted(ordered, np.array(found) - 1e-9, side="left")
    likely: Floats = (len(ordered) - reached) / len(ordered)
    return likely


def _spectrum(slow: Bools) -> Any:
    return np.conj(_fft.rfft(slow.astype(np.float64), _padded(len(slow))))


def _counts(marked: Bools, spectrum: Any) -> Floats:
    """Return how many slow requests have a value after each circular shift in time; the first is none."""
    size, padded = len(marked), _padded(len(marked))
    apart: Floats = _fft.irfft(_fft.rfft(marked.astype(np.float64), padded) * spectrum, padded)
    # A shift around the end is one forwards and one backwards, which padding keeps apart.
    counts = apart[:size].copy()
    counts[1:] += apart[padded - size + 1 :]
    return np.rint(counts)


def _padded(size: int) -> int:
    """Return a length of small factors: one of a large prime takes ten times as long."""
    length: int = _fft.next_fast_len(2 * size, real=True)
    return length
