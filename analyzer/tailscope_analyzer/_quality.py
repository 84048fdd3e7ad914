"""How far a report can be trusted: what is missing, what clocks say, what the percentile stands on.

Owns the verdict in words. `ok` means that nothing is to be said against the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._clock import clock_grains
from tailscope_analyzer._quantile import effective_size, weighted_quantile
from tailscope_analyzer._report import Quality

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._traces import Traces

BEYOND_NEEDED: Final = 3
"""A percentile is refused when fewer requests than this lie beyond it: 300 for p99, 60 for p95."""

CLIFF_SHARE: Final = 0.05
"""Where the smoothed and the sample percentile differ by more, two kinds of requests meet there."""

CLIFF_BEYOND: Final = 10
"""With fewer requests beyond the percentile chance parts the two: by 10 % at p99 of 500 log-normal ones."""

COMPLETE_SHARE: Final = 0.95
"""Below this share of complete traces the verdict says so."""


def judge_quality(
    traces: Traces, split: Parts, smoothed: Mapping[float, float], percentile: float
) -> Quality:
    """Weigh the requests behind a report; `smoothed` has the quantiles it rests on, by q."""
    requests = traces.requests.filter(pl.col("sample_weight").fill_null(1.0) != 0)
    total, stored = len(requests), len(split.duration_ms)
    complete = _complete_share(requests)
    sizes = {q: effective_size(split.weight, q) for q in (0.5, percentile)} if stored else {}
    skewed = int(requests["skewed"].sum())
    remarks = [
        _enough(stored, sizes, percentile),
        *(_cliff(split, q, value, sizes[q]) for q, value in smoothed.items()),
        _left_out(total, total - stored),
        f"only {complete:.0%} of the traces are complete"
        if complete is not None and complete < COMPLETE_SHARE
        else "",
        f"clocks disagree: in {skewed} requests a callee seems to start before its caller" if skewed else "",
    ]
    return Quality(
        complete_share=complete,
        orphans=int(requests["orphans"].sum()),
        dropped=None,
        skewed=skewed,
        clock_grain_ns=_grain(requests),
        sampled=bool(np.any(split.weight != 1.0)),
        verdict="; ".join(remark for remark in remarks if remark) or "ok",
        stored=stored,
        sampled_share=stored / float(split.weight.sum()) if stored else None,
        effective=sizes.get(percentile),
    )


def percentile_name(percentile: float) -> str:
    """Return `p99` for 0.99, `p99.9` for 0.999."""
    return f"p{percentile * 100:.10g}"


def is_enough(n: float, percentile: float) -> bool:
    """Tell whether so many requests can carry the percentile."""
    return n * (1 - percentile) >= BEYOND_NEEDED - 1e-9


def carries(weight: Floats, percentile: float) -> bool:
    """Tell whether requests of these weights, fastest first, can carry the percentile and the median."""
    return len(weight) > 0 and all(is_enough(effective_size(weight, q), q) for q in (percentile, 0.5))


def _enough(stored: int, sizes: Mapping[float, float], percentile: float) -> str:
    lacking = [q for q in (percentile, 0.5) if not is_enough(sizes.get(q, 0.0), q)]
    if not lacking:
        return ""
    q = lacking[0]
    n, needed = sizes.get(q, 0.0), int(np.ceil(round(BEYOND_NEEDED / (1 - q), 6)))
    what = f"of at least {needed} that {percentile_name(q)} needs"
    if n == stored:
        return f"too few requests: {stored} {what}"
    return f"too few requests: the {stored} that sampling left tell as much as {np.floor(n):.0f} {what}"


def _complete_share(requests: pl.DataFrame) -> float | None:
    """Return the weighted share of complete traces; None where nobody has said."""
    if requests["complete"].null_count() == len(requests):
        return None
    weight = pl.col("sample_weight").fill_null(1.0)
    complete = pl.col("complete").fill_null(False)
    return float(requests.select((weight * complete).sum() / weight.sum()).item())


def _cliff(split: Parts, q: float, smoothed_ms: float, effective: float) -> str:
    sample = weighted_quantile(split.duration_ms, split.weight, q)
    if abs(smoothed_ms - sample) <= CLIFF_SHARE * sample:
        return ""
    beyond = effective * (1 - q)
    what = (
        f"rests on the {beyond:.0f} slowest requests alone"
        if beyond < CLIFF_BEYOND
        else "stands on a cliff between two kinds of requests"
    )
    return (
        f"{percentile_name(q)} {what}: the sample says {sample:.1f} ms, its neighbourhood "
        f"{smoothed_ms:.1f} ms"
    )


def _left_out(total: int, left_out: int) -> str:
    if total == 0:
        return "no requests match"
    if left_out == 0:
        return ""
    return f"{left_out} of {total} requests are left out: impossible times, or no entry span"


def _grain(requests: pl.DataFrame) -> int | None:
    """Return the coarsest clock among the services of entry spans, in ns."""
    if len(requests) == 0:
        return None
    service = requests["service"].fill_null("").rank("dense").cast(pl.Int64).to_numpy() - 1
    grains = clock_grains(service, requests["start_unix_nano"].to_numpy(), int(service.max()) + 1)
    return int(grains.max())
