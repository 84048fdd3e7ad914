"""The rows that every report has: what halving each of the largest stages would give.

Owns their choice and their cost: they come with a report that nobody asked a prediction of, so they are few,
and made from what is in memory.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer._whatif._change import Changes, StageChange
from tailscope_analyzer._whatif._intervals import Durations
from tailscope_analyzer._whatif._predict import Predictor
from tailscope_analyzer._whatif._whatif import graph_of, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._report import StageRow
    from tailscope_analyzer._traces import Traces

MOST_REQUESTS: Final = 50_000
"""Of more no row is made: 50,000 requests take 0.3 s by their ledger."""
ROWS: Final = 3
HALF: Final = 0.5
LEAST_SHARE: Final = 0.05
"""Of the tail; halving less cannot move it by 3 %."""


def default_rows(traces: Traces, stages: Sequence[StageRow]) -> tuple[dict[str, Any], ...]:
    """Predict the halving of each of the stages that the tail spends most on; none of very many requests."""
    if not 0 < len(traces.requests) <= MOST_REQUESTS:
        return ()
    targets = _largest(stages)
    if not targets:
        return ()
    graph = graph_of(traces, in_haste=True)
    predictor = Predictor(graph)
    now = Durations(graph.asked.duration_ms, graph.asked.weight)
    rows: list[dict[str, Any]] = []
    for service, stage in targets:
        changes = Changes(stages=(StageChange(f"{service} {stage}", factor=HALF),))
        row = asdict(row_of(changes, predictor.predict(changes), now, graph))
        # With lists for intervals, as JSON gives them back: a report that was read equals the one written.
        plain: dict[str, Any] = json.loads(json.dumps(row))
        rows.append({**plain, "stage": stage, "service": service, "way": graph.way})
    return tuple(rows)


def _largest(stages: Sequence[StageRow]) -> list[tuple[str, str]]:
    """Return service and stage of the largest parts of the tail; a wait in a queue cannot be made faster."""
    tail_ms: dict[tuple[str, str], float] = {}
    for row in stages:
        if row.category != "queue":
            name = (row.service, row.stage)
            tail_ms[name] = tail_ms.get(name, 0.0) + row.tail_ms
    whole = sum(row.tail_ms for row in stages)
    large = [name for name in tail_ms if tail_ms[name] >= LEAST_SHARE * whole]
    return sorted(large, key=lambda name: (-tail_ms[name], name))[:ROWS]
