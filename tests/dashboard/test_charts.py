"""The charts: what their axes and legends say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tailscope_dashboard import _bridge as bridges
from tailscope_dashboard import _charts as charts
from tests.dashboard.reports import report, stage

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ENDS = {"start_time": [NOON], "end_time": [NOON + timedelta(minutes=1)]}
SPLIT = report(stage("queue", 4, 1_400), stage("auth", 1, 2))

DRAWN = {
    "percentiles": charts.percentiles(
        pl.DataFrame(
            {
                "start_time": [NOON],
                "percentile": ["p50"],
                "latency_ms": [0.1],
                "requests": [9],
                "last": [True],
            }
        ),
        ticks=[0.1, 1000.0],
        theme="light",
    ),
    "volume": charts.volume(
        pl.DataFrame(ENDS | {"outcome": ["ok"], "bottom": [0], "top": [1200], "requests": [1200]})
    ),
    "heat map": charts.heat_map(
        pl.DataFrame(ENDS | {"low_ms": [0.1], "high_ms": [0.2], "requests": [1200], "errors": [0]}),
        ticks=[0.1, 1000.0],
        theme="light",
    ),
    "bridge": charts.bridge(bridges.bridge(SPLIT), theme="light"),
    "composition": charts.composition(bridges.composition(SPLIT), theme="light"),
}


def formats(node: Any) -> Iterator[str]:
    """Yield every number format that a chart names."""
    if isinstance(node, dict):
        if isinstance(node.get("format"), str):
            yield node["format"]
        for value in node.values():
            yield from formats(value)
    elif isinstance(node, list):
        for value in node:
            yield from formats(value)


@pytest.mark.parametrize("name", DRAWN)
def test_numbers_have_groups_of_thousands_and_no_suffix(name: str) -> None:
    found = set(formats(DRAWN[name].to_dict()))

    assert found
    # d3: `s` writes 1.2k and 100m, `g` writes 1e-7.
    assert {form for form in found if not form.startswith(",") or form[-1] in "sge"} == set()
