"""Requests with known parts, as a store would keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tailscope_analyzer import Traces

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

START_US = 1_735_689_600_000_000


def traces_of(
    parts_ms: Mapping[tuple[str, str, str], npt.ArrayLike],
    *,
    weight: npt.ArrayLike | None = None,
    step_us: int = 1_001,
) -> Traces:
    """Make one request per position; each part is (service, stage, category) with its ms in every request."""
    columns = {
        key: np.rint(np.asarray(values, dtype=float) * 1e6).astype(np.int64)
        for key, values in parts_ms.items()
    }
    total = np.sum(list(columns.values()), axis=0)
    ids = pl.Series([f"{number:032x}" for number in range(len(total))], dtype=pl.String)
    requests = pl.DataFrame(
        {
            "trace_id": ids,
            "service": ["api"] * len(total),
            "operation": ["POST /predict"] * len(total),
            "start_time": pl.Series(START_US + np.arange(len(total)) * step_us).cast(pl.Datetime("us")),
            "duration_ms": total / 1e6,
            "duration_ns": total,
            "complete": [True] * len(total),
            "sample_weight": np.ones(len(total)) if weight is None else np.asarray(weight, dtype=float),
        }
    )
    rows = [
        pl.DataFrame({"trace_id": ids, "self_ns": spent, "self_ms": spent / 1e6}).with_columns(
            service=pl.lit(service),
            stage=pl.lit(stage),
            category=pl.lit(category),
            operation=pl.lit("api -> db" if category == "gap" else stage),
        )
        for (service, stage, category), spent in columns.items()
    ]
    return Traces.from_parts(requests, pl.concat(rows).filter(pl.col("self_ns") > 0))


def mixed(n: int, seed: int = 7) -> dict[tuple[str, str, str], npt.NDArray[np.float64]]:
    """Draw n requests of a service: steady work, a queue that is long for some, a gap."""
    rng = np.random.default_rng(seed)
    return {
        ("api", "inference", "self"): rng.lognormal(3.5, 0.2, n),
        ("api", "queue", "queue"): rng.exponential(2, n) + (rng.random(n) < 0.08) * rng.exponential(60, n),
        ("api", "network", "gap"): rng.gamma(2, 0.5, n),
    }
