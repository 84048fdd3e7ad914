"""How far a report can be trusted: what is missing, what clocks say, what the percentile stands on.

Owns the verdict in words. `ok` means that nothing is to be said against the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._clock import clock_grains
from tailscope_analyzer._quantile import weighted_quantile
from tailscope_analyzer._report import Quality

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    requests = traces.requests
    total = len(requests)
    complete = (
        requests["complete"].sum() / total if total and requests["complete"].null_count() < total else None
    )
    skewed = int(requests["skewed"].sum())
    remarks = [
        _enough(len(split.duration_ms), percentile),
        *(_cliff(split, q, value) for q, value in smoothed.items()),
        _left_out(total, total - len(split.duration_ms)),
        f"only {complete:.0%} of the traces are complete"
        if complete is not None and complete < COMPLETE_SHARE
        else "",
        f"clocks disagree: in {skewed} requests a callee seems to start before its caller" if skewed else "",
    ]
    return Quality(
        complete_share=None if complete is None else float(complete),
        orphans=int(requests["orphans"].sum()),
        dropped=None,
        skewed=skewed,
        clock_grain_ns=_grain(requests),
        sampled=bool(np.any(split.weight != 1.0)),
        verdict="; ".join(remark for remark in remarks if remark) or "ok",
    )


def percentile_name(percentile: float) -> str:
    """Return `p99` for 0.99, `p99.9` for 0.999."""
    return f"p{percentile * 100:.10g}"


def is_enough(n: int, percentile: float) -> bool:
    """Tell whether so many requests can carry the percentile."""
    return n * (1 - percentile) >= BEYOND_NEEDED - 1e-9


def _enough(n: int, percentile: float) -> str:
    if is_enough(n, percentile):
        return ""
    needed = int(np.ceil(round(BEYOND_NEEDED / (1 - percentile), 6)))
    return f"too few requests: {n} of at least {needed} that {percentile_name(percentile)} needs"


def _cliff(split: Parts, q: float, smoothed_ms: float) -> str:
    sample = weighted_quantile(split.duration_ms, split.weight, q)
    if abs(smoothed_ms - sample) <= CLIFF_SHARE * sample:
        return ""
    beyond = len(split.duration_ms) * (1 - q)
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
