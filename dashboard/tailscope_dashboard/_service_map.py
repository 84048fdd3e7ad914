"""The map of services: what stands in each box and on each edge, from rows of aggregates.

Owns the words on the map, which percentiles it may give, and how many services it draws. Pure frames in,
plain values out; draws nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard._map_layout import BOX, lay_out
from tailscope_dashboard._scope import QUANTILES, Scope
from tailscope_dashboard._series import REQUESTS_NEEDED
from tailscope_dashboard._sqltext import Latency, Value

if TYPE_CHECKING:
    from tailscope_dashboard._sampled import Sampled

MOST_DRAWN: Final = 60
"""Services on the map, the busiest; the tables have the others."""

FAILING: Final = 0.01
"""Share of errors from which a box or an edge is marked: a hundredth is what a usual objective allows."""


def values(scope: Scope, sampled: Sampled) -> dict[str, Value]:
    """Return the parameters of the queries."""
    quantiles: dict[str, Value] = {
        f"{name}_{quantile}": Latency(q, scope.sampled, f"{name}_ms")
        for name in ("call", "gap")
        for quantile, q in QUANTILES.items()
    }
    return scope.values() | quantiles | sampled.values()


def known(rows: pl.DataFrame, *, seconds: float) -> pl.DataFrame:
    """Add rate and share of errors, take out percentiles of too few calls."""
    counted = "calls" if "calls" in rows.columns else "requests"
    needed = [
        ("p50_ms", "effective", "p50"),
        ("p99_ms", "effective", "p99"),
        ("gap_p99_ms", "gap_effective", "p99"),
    ]
    return rows.with_columns(
        *(
            pl.when(pl.col(n) >= REQUESTS_NEEDED[name]).then(pl.col(column)).alias(column)
            for column, n, name in needed
            if column in rows.columns
        ),
        (pl.col(counted) / max(seconds, 1.0)).alias("rate"),
        pl.when(pl.col(counted) > 0).then(pl.col("errors") / pl.col(counted)).alias("error_share"),
    )


def edges_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of whole edges."""
    return calls.filter(pl.col("operation").is_null()).drop("operation")


def operations_of(calls: pl.DataFrame, caller: str, callee: str) -> pl.DataFrame:
    """Return the rows of the operations of one edge."""
    return calls.filter(
        pl.col("operation").is_not_null() & (pl.col("caller") == caller) & (pl.col("callee") == callee)
    )


def drawing(
    edges: pl.DataFrame, services: pl.DataFrame, *, seconds: float, chosen: tuple[str, ...]
) -> dict[str, Any]:
    """Return what the component draws: boxes and edges with their places and words.

    `edges` and `services` are as `known` returns them; `chosen` is a service, or caller and callee.
    """
    names = _drawn(edges, services)
    told = {row["service"]: row for row in services.iter_rows(named=True)}
    pairs = [row for row in edges.iter_rows(named=True) if row["caller"] in names and row["callee"] in names]
    layout = lay_out(names, [(row["caller"], row["callee"]) for row in pairs])
    busiest = max((row["calls"] for row in pairs), default=1)
    return {
        "width": layout.width,
        "height": layout.height,
        "box": list(BOX),
        "services": [
            {"name": name, "x": x, "y": y, **_box(name, told.get(name), seconds), "chosen": chosen == (name,)}
            for name, (x, y) in sorted(layout.services.items())
        ],
        "edges": [
            {
                "caller": row["caller"],
                "callee": row["callee"],
                "points": [list(point) for point in layout.edges[row["caller"], row["callee"]]],
                "label": list(layout.labels[row["caller"], row["callee"]]),
                "weight": 1.2 + 3.0 * math.log1p(row["calls"]) / math.log1p(max(busiest, 1)),
                "chosen": chosen == (row["caller"], row["callee"]),
                **_edge(row, seconds),
            }
            for row in pairs
            if row["caller"] != row["callee"]
        ],
    }


def _drawn(edges: pl.DataFrame, services: pl.DataFrame) -> set[str]:
    """Return the services that are drawn: those that do most."""
    load = pl.concat(
        [
            edges.select(pl.col("callee").alias("name"), pl.col("calls").alias("n")),
            edges.select(pl.col("caller").alias("name"), pl.col("calls").alias("n")),
            services.select(pl.col("service").alias("name"), pl.col("requests").alias("n")),
        ]
    )
    busiest = load.group_by("name").agg(pl.col("n").max()).sort("n", "name", descending=[True, False])
    return set(busiest.head(MOST_DRAWN)["name"].to_list())


def _box(name: str, row: dict[str, Any] | None, seconds: float) -> dict[str, Any]:
    if row is None:
        return {
            "traced": False,
            "failing": False,
            "lines": ["sends no spans"],
            "spoken": f"{name}, sends no spans",
        }
    n, share = row["requests"], row["error_share"] or 0.0
    p99 = (
        f"p99 {figures.milliseconds(row['p99_ms'])}"
        if row["p99_ms"] is not None
        else f"n = {figures.count(n)}"
    )
    lines = [f"{figures.rate(n, seconds)} · {p99}"]
    if share >= FAILING:
        lines.append(f"{figures.share(share, digits=1)} errors")
    spoken = (
        f"{name}: {figures.count(n)} requests, {figures.rate(n, seconds)}, "
        f"{figures.share(share, digits=2)} errors, "
        f"p50 {figures.milliseconds(row['p50_ms'])}, p99 {figures.milliseconds(row['p99_ms'])}, "
        f"own time {figures.milliseconds(row['own_ms'])} a request"
    )
    return {"traced": True, "failing": share >= FAILING, "lines": lines, "spoken": spoken}


def _edge(row: dict[str, Any], seconds: float) -> dict[str, Any]:
    share, n = row["error_share"] or 0.0, row["calls"]
    rate = figures.rate(n, seconds)
    first = [rate, f"{figures.share(share, digits=1)} errors"] if share >= FAILING else [rate]
    second = (
        [f"p99 {figures.milliseconds(row['p99_ms'])}"]
        if row["p99_ms"] is not None
        else [f"n = {figures.count(n)}"]
    )
    if row["gap_ms"] is not None:
        second.append(f"gap {figures.milliseconds(row['gap_ms'])}")
    spoken = (
        f"{row['caller']} to {row['callee']}: {figures.count(n)} calls, {rate}, "
        f"{figures.share(share, digits=2)} errors, p50 {figures.milliseconds(row['p50_ms'])}, "
        f"p99 {figures.milliseconds(row['p99_ms'])}, mean gap {figures.milliseconds(row['gap_ms'])}"
    )
    return {
        "failing": share >= FAILING,
        "lines": [" · ".join(first), " · ".join(second)],
        "spoken": spoken,
    }
