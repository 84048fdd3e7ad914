"""Evidence made of facts alone: arrays in, without a span, so that hundreds of data sets take seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from tailscope_analyzer._evidence import Evidence
from tailscope_analyzer._evidence._arrivals import Arrivals, occurrences
from tailscope_analyzer._parts import Part
from tailscope_analyzer._quantile import Smoother, effective_size

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


def evidence_with(
    facts: dict[str, Any],
    duration_ms: Floats,
    *,
    weight: Floats | None = None,
    operation: npt.NDArray[Any] | None = None,
    tokens: Floats | None = None,
    percentile: float = 0.99,
) -> Evidence:
    """Return the evidence of requests in order of start."""
    n = len(duration_ms)
    weight = np.ones(n) if weight is None else weight
    order = np.argsort(duration_ms, kind="stable")
    edges = np.r_[0.0, np.cumsum(weight[order]) / weight.sum()]
    tail, typical = np.empty(n), np.empty(n)
    for into, q in ((tail, percentile), (typical, 0.5)):
        into[order] = Smoother(effective_size(weight[order], q), q).exact(edges)
    requests = pl.DataFrame(
        {
            "trace_id": [f"{i:032x}" for i in range(n)],
            "service": pl.Series(["ranker"] * n),
            "operation": pl.Series(["predict"] * n if operation is None else operation.tolist()),
            "model": pl.Series([None] * n, dtype=pl.String),
            "input_tokens": pl.Series([None] * n if tokens is None else tokens.tolist(), dtype=pl.Float64),
        }
    )
    matrix = csr_array(duration_ms[:, None])
    return Evidence(
        requests=requests,
        duration_ms=duration_ms,
        weight=weight,
        tail_weight=tail,
        typical_weight=typical,
        percentile=percentile,
        faster_half=False,
        parts=[Part("ranker", "inference", "self")],
        matrix=matrix,
        typical_ms=np.array([typical @ duration_ms]),
        facts=pl.DataFrame(facts),
        spans=pl.DataFrame(),
        attributes=pl.DataFrame(),
        events=pl.DataFrame(),
    )


def with_order(facts: dict[str, Any]) -> dict[str, Any]:
    """Add first, changed and how-manieth values of every text, as on one server."""
    n = len(next(iter(facts.values())))
    at = np.arange(n, dtype=np.int64)
    arrivals = Arrivals(pl.Series(["ranker/"] * n), np.zeros(n, dtype=np.int64), at, at + 1, at)
    added: dict[str, Any] = {}
    for key, values in facts.items():
        series = pl.Series(key, values)
        if series.dtype == pl.String:
            seen = occurrences(arrivals, series)
            added.update({f"{kind}:{key}": value for kind, value in seen.items()})
    return facts | added
