"""Reports made by hand, for tests that need a certain split."""

from __future__ import annotations

import json
from typing import Any

from tailscope_analyzer import Report


def stage(
    name: str, typical_ms: float, tail_ms: float, *, category: str = "self", service: str = "ranker"
) -> dict[str, Any]:
    """Return one row of the split; its interval is one millisecond to both sides."""
    excess = tail_ms - typical_ms
    return {
        "service": service,
        "stage": name,
        "category": category,
        "typical_ms": typical_ms,
        "tail_ms": tail_ms,
        "excess_ms": excess,
        "share": excess / 100,
        "ci95_ms": [excess - 1, excess + 1],
    }


def report(*stages: dict[str, Any], **changes: Any) -> Report:
    """Return a report with these rows; typical and excess are their sums."""
    typical = sum(row["typical_ms"] for row in stages)
    fields: dict[str, Any] = {
        "version": 1,
        "window": {"start": None, "end": None, "service": None, "operation": None, "where": None},
        "requests": 1000,
        "percentile": 0.99,
        "latency_ms": {
            "p50": 40.0,
            "p90": 60.0,
            "p95": 80.0,
            "p99": 139.0,
            "p999": 200.0,
            "max": 210.0,
            "mean": 45.0,
        },
        "excess_ms": sum(row["excess_ms"] for row in stages),
        "baseline": {"kind": "p50", "ms": typical if stages else None, "reason": "the median is typical"},
        "quality": {
            "complete_share": 1.0,
            "orphans": 0,
            "dropped": None,
            "skewed": 0,
            "clock_grain_ns": 1000,
            "sampled": False,
            "verdict": "ok",
        },
        "stages": list(stages),
        "services": [],
        "edges": [],
        "attributes": [],
        "causes": [],
        "whatif": [],
        "slowest": [],
    }
    return Report.from_json(json.dumps(fields | changes))
