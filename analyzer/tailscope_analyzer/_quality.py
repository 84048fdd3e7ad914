"""How far a report can be trusted: what is missing, what clocks say, what the percentile stands on.

Owns the verdict in words. `ok` means that nothing is to be said against the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tailscope_analyzer._clock import service_grains
from tailscope_analyzer._quantile import weighted_quantile
from tailscope_analyzer._report import Quality

if TYPE_CHECKING:
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._traces import Traces

CLIFF_SHARE = 0.05
"""Where the smoothed and the sample percentile differ by more, two kinds of requests meet there."""

COMPLETE_SHARE = 0.95
"""Below this share of complete traces the verdict says so."""


def judge_quality(
    traces: Traces, split: Parts, percentile: float, tail_ms: float | None, beyond_needed: int
) -> Quality:
    """Weigh the requests behind a report; `tail_ms` is None when the percentile was refused."""
    requests = traces.requests
    total = len(requests)
    complete = (
        requests["complete"].sum() / total if total and requests["complete"].null_count() < total else None
    )
    skewed = int(requests["skewed"].sum())
    remarks = [
        _enough(len(split.duration_ms), percentile, beyond_needed),
        _cliff(split, percentile, tail_ms),
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


def _enough(n: int, percentile: float, beyond_needed: int) -> str:
    if n * (1 - percentile) >= beyond_needed - 1e-9:
        return ""
    needed = int(np.ceil(round(beyond_needed / (1 - percentile), 6)))
    return f"too few requests: {n} of at least {needed} that {percentile_name(percentile)} needs"


def _cliff(split: Parts, percentile: float, tail_ms: float | None) -> str:
    if tail_ms is None:
        return ""
    sample = weighted_quantile(split.duration_ms, split.weight, percentile)
    if abs(tail_ms - sample) <= CLIFF_SHARE * sample:
        return ""
    return (
        f"{percentile_name(percentile)} stands on a cliff between two kinds of requests: the sample says "
        f"{sample:.1f} ms, its neighbourhood {tail_ms:.1f} ms"
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
    grains = service_grains(service, requests["start_unix_nano"].to_numpy(), int(service.max()) + 1)
    return int(grains.max())
