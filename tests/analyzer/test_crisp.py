"""The critical-path cases of uber-research/CRISP: exclusive times as each file states them."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_analyzer import Traces
from tests.analyzer.build import span, table
from tests.shared import shared_file

if TYPE_CHECKING:
    import pyarrow as pa

CASES = [
    *(f"crisp/{number}.json" for number in range(1, 13)),
    *(f"jaeger_crisp_{n}.json" for n in (13, 15, 16)),
]
OVERLAPPING = "crisp/10.json"
"""Siblings that overlap by a microsecond: the case counts it twice, a ledger cannot."""


def spans_of(document: dict[str, Any]) -> pa.Table:
    """Read a case: Jaeger JSON, in microseconds."""
    (trace,) = document["data"]
    rows: list[dict[str, Any]] = []
    for one in trace["spans"]:
        above = [ref["spanID"] for ref in one["references"] if ref["refType"] == "CHILD_OF"]
        kind = next(
            (tag["value"] for tag in one.get("tags") or () if tag["key"] == "span.kind"), "unspecified"
        )
        rows.append(
            span(
                one["operationName"],
                one["startTime"] / 1e3,
                (one["startTime"] + one["duration"]) / 1e3,
                above[0] if above else None,
                id=one["spanID"],
                service=trace["processes"][one["processID"]]["serviceName"],
                kind=kind,
            )
        )
    return table(*rows)


@pytest.mark.parametrize("case", CASES)
def test_exclusive_times_are_those_that_the_case_states(case: str) -> None:
    document = json.loads(shared_file(f"traces/{case}").read_text())

    traces = Traces.from_spans(spans_of(document))
    found: Counter[str] = Counter()
    for service, operation, self_ns in traces.ledger.select("service", "operation", "self_ns").rows():
        found[f"[{service}] {operation}"] += self_ns

    stated = document["testing"]
    times: dict[str, int] = stated["opTimeExclusive"] if "opTimeExclusive" in stated else stated[0]
    expected = {name: microseconds * 1000 for name, microseconds in times.items() if microseconds}
    assert found == pytest.approx(expected, abs=2_000 if case == OVERLAPPING else 0)
    assert sum(found.values()) == traces.requests["duration_ns"].item()
