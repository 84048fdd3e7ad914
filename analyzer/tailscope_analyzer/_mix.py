"""How much of the excess is the mix: slow requests that ask for more, or requests slower than their like.

Owns the split of an excess into a part between classes of requests and a part within them, without a
remainder. It never calls a part slow: a class that takes long is the mix, whatever the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.sparse import csr_array

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._mix_classes import ANY, sort_into_classes
from tailscope_analyzer._names import readable
from tailscope_analyzer._parts import Part, Parts
from tailscope_analyzer._quantile import Smoother, effective_size
from tailscope_analyzer._report import Mix, MixRow
from tailscope_analyzer._spread import spread_of

if TYPE_CHECKING:
    import polars as pl

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._mix_classes import RequestClass

WORTH_SAYING: Final = 0.2
"""Of the excess: what a row of the report needs, too, to stand out."""
MOST_ROWS: Final = 20


def split_mix(
    requests: pl.DataFrame,
    duration_ms: Floats,
    weight: Floats,
    tail_weight: Floats,
    typical_weight: Floats,
    *,
    percentile: float,
    faster_half: bool = False,
) -> Mix | None:
    """Split the excess of the tail over the typical request into mix and slow-down; None with one class only.

    The mix is the sum over classes of (share of the tail - share of the typical request) x (median of the
    class - typical request); what is left is within classes.

    Args:
        requests: service, operation, model and input_tokens, fastest request first.
        duration_ms: of each request, ascending.
        weight: how many requests each stands for.
        tail_weight: of each in the tail; sums to 1.
        typical_weight: of each in the typical request; sums to 1.
        percentile: the tail's.
        faster_half: the typical request is the mean of the faster half.

    """
    classes = sort_into_classes(requests, duration_ms, weight)
    count = len(classes.names)
    if count < 2:
        return None
    shares = [np.bincount(classes.number, each, count) for each in (tail_weight, typical_weight)]
    typical_ms = float(typical_weight @ duration_ms)
    added = (shares[0] - shares[1]) * (classes.typical_ms - typical_ms)
    mix_ms = float(added.sum())
    excess_ms = float((tail_weight - typical_weight) @ duration_ms)
    sizes = np.bincount(classes.number, weight, count)
    rows = [
        MixRow(
            *_words(name),
            requests=round(float(sizes[at])),
            typical_ms=float(classes.typical_ms[at]),
            typical_share=float(shares[1][at]),
            tail_share=float(shares[0][at]),
            excess_ms=float(added[at]),
        )
        for at, name in enumerate(classes.names)
    ]
    rows.sort(key=lambda row: -abs(row.excess_ms))
    return Mix(
        mix_ms=mix_ms,
        within_ms=excess_ms - mix_ms,
        share=mix_ms / excess_ms if excess_ms else 0.0,
        ci95_ms=_interval(
            classes.typical_of, duration_ms, weight, tail_weight, mix_ms, percentile, faster_half=faster_half
        ),
        rows=tuple(rows[:MOST_ROWS]),
    )


def is_worth_saying(mix: Mix) -> bool:
    """Tell whether the mix is a part of the excess that a reader must know of, and not chance."""
    return mix.share >= WORTH_SAYING and mix.ci95_ms[0] > 0


def mix_note(mix: Mix | None) -> str:
    """Return the sentence that a reader must know before reading on; empty where the mix hardly matters."""
    if mix is None or not is_worth_saying(mix):
        return ""
    most = max(mix.rows, key=lambda row: row.excess_ms * (row.tail_share > row.typical_share))
    return (
        f"{mix.share:.0%} of the excess ({milliseconds(mix.mix_ms)}) is the mix: slow requests ask for "
        f"something else. {class_name(most)}: {most.tail_share:.0%} of the tail, {most.typical_share:.0%} of "
        f"typical requests, and the median of them takes {milliseconds(most.typical_ms)}. The other "
        f"{milliseconds(mix.within_ms)} are requests slower than their like."
    )


def class_name(row: MixRow) -> str:
    """Write what the requests of a class ask for."""
    named = (
        ("", row.operation),
        ("model ", row.model),
        ("", f"{row.input_tokens} input tokens" if row.input_tokens not in ("", ANY) else ""),
    )
    told = [readable(f"{before}{text}") for before, text in named if text not in ("", ANY)]
    return ", ".join(told) or "Rare kinds"


def _words(name: RequestClass) -> tuple[str, str, str, str]:
    return name.service, name.operation, name.model, name.input_tokens


def _interval(
    typical_of: Floats,
    duration_ms: Floats,
    weight: Floats,
    tail_weight: Floats,
    mix_ms: float,
    percentile: float,
    *,
    faster_half: bool,
) -> tuple[float, float]:
    import polars as pl

    between = Parts(
        trace_ids=pl.Series([], dtype=pl.String),
        duration_ms=duration_ms,
        weight=weight,
        matrix=csr_array(typical_of[:, None]),
        parts=[Part("", "", "")],
    )
    smoothers = (
        Smoother(effective_size(weight, 0.5), 0.5),
        Smoother(effective_size(weight, percentile), percentile),
    )
    return spread_of(between, smoothers, tail_weight, faster_half=faster_half).interval([0], mix_ms)
