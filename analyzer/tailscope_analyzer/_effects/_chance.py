"""How likely a pattern is by chance: an exact test of many candidates at once, and error control.

Owns the statistics of attribute search. Importing scipy.stats for them would take a second of every report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats

ERROR_RATE: Final = 0.05
"""Of what is claimed, the share that may be wrong."""
TERMS: Final = 512
"""Of a tail's sum: 20 standard deviations of the widest distribution here (2,500 slow, half of them hit)."""


def fisher_log(hits: Floats, slow: Floats | float, having: Floats, total: Floats | float) -> Floats:
    """Return the logarithm of how likely so many hits, or more, are: Fisher's exact test, one-sided.

    Args:
        hits: slow requests that have the value; fractions count too, sizes are effective ones.
        slow: how many are slow.
        having: how many have the value.
        total: how many there are.

    """
    k, n, big_k, big_n = np.broadcast_arrays(
        *(np.asarray(x, dtype=np.float64) for x in (hits, slow, having, total))
    )
    most = np.minimum(n, big_k)
    k = np.minimum(k, most)
    enriched = k * big_n > n * big_k
    step = np.arange(TERMS)
    at = k[:, None] + step
    up = np.maximum(big_k[:, None] - at, 0.0) * np.maximum(n[:, None] - at, 0.0)
    down = (at + 1) * np.maximum(big_n - big_k - n + 1, 1e-9)[:, None] + (at + 1) * at
    # Beyond the mean every term is less than the one before; below it the answer is 1 anyway.
    ratio = np.minimum(up / np.maximum(down, 1e-300), 1.0)
    series = 1.0 + np.cumprod(ratio, axis=1).sum(axis=1)
    first = (
        _choose(big_k, k)
        + _choose(np.maximum(big_n - big_k, 0.0), np.maximum(n - k, 0.0))
        - _choose(big_n, n)
    )
    log_p: Floats = np.where(enriched, np.minimum(first + np.log(series), 0.0), 0.0)
    return log_p


def enrichment_log(hits: Floats, having: Floats, slow: Bools, weight: Floats) -> Floats:
    """Test sums of weights as a table of effective sizes: the slow and the others each count by their own.

    Args:
        hits: weight of the slow requests that have each value.
        having: weight of all requests that have it.
        slow: which requests are slow.
        weight: of each request.

    """
    slow_total, slow_size = _sizes(weight[slow])
    other_total, other_size = _sizes(weight[~slow])
    if not slow_total or not other_total:
        return np.zeros(len(hits))
    # Half of a hit must not count as a whole one: rounded towards what chance would do.
    in_slow = np.floor(hits / slow_total * slow_size + 1e-9)
    in_others = np.ceil((having - hits) / other_total * other_size - 1e-9)
    return fisher_log(in_slow, slow_size, in_slow + in_others, slow_size + other_size)


def _sizes(weight: Floats) -> tuple[float, float]:
    """Return the sum of weights, and how many equal ones would tell as much (Kish)."""
    total, squares = float(weight.sum()), float((weight**2).sum())
    return total, round(total**2 / squares) if squares else 0.0


def _choose(n: Floats, k: Floats) -> Floats:
    """Return the logarithm of the binomial coefficient; of fractions, its continuation."""
    room = np.maximum(n - k, 0.0)
    logarithm: Floats = gammaln(n + 1) - gammaln(k + 1) - gammaln(room + 1)
    return logarithm


def q_values(p: Floats) -> Floats:
    """Return Benjamini and Hochberg's q-value of each p-value."""
    m = len(p)
    order = np.argsort(p, kind="stable")
    scaled = p[order] * m / np.arange(1, m + 1)
    q = np.empty(m)
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q
