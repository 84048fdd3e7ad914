"""Documents of other formats in a store, for the tests of what they become."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tailscope_collector._files._chrome import from_chrome
from tailscope_collector._files._chrome_events import chrome_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_collector._files._chrome_plan import Under
    from tailscope_collector._otlp_json import JsonRequest
    from tests.collector.building import Bench


def store(bench: Bench, requests: Iterable[JsonRequest]) -> list[JsonRequest]:
    """Commit converted requests and return them."""
    made = list(requests)
    bench.ingest(*[request.body for request in made if request.spans])
    return made


def only(bench: Bench, query: str) -> tuple[Any, ...]:
    """Return the one row of a query."""
    (row,) = bench.rows(query)
    return row


def profile(
    bench: Bench, events: list[dict[str, Any]], *, under: Under | None = None, **header: object
) -> list[JsonRequest]:
    """Store a Chrome trace of these events."""
    source = chrome_text(json.dumps({"traceEvents": events, **header}))
    assert source is not None
    return store(bench, from_chrome(source, under=under))


def parents(bench: Bench, where: str = "true") -> dict[str, str | None]:
    """Return of each operation the operation of its parent; all names differ."""
    rows = bench.rows(
        "select child.operation, parent.operation from spans as child left join spans as parent "  # noqa: S608
        "on parent.trace_id = child.trace_id and parent.span_id = child.parent_span_id "
        f"where {where.replace('operation', 'child.operation')}"
    )
    return dict(rows)
