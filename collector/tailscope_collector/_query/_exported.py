"""Traces as files for other tools: OTLP, Jaeger and Perfetto.

Owns which format is made from what. The formats themselves are those of `_otlp_tree`, `_perfetto` and
`_jaeger_json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer import NotFoundError, QueryError
from tailscope_collector import _sql
from tailscope_collector._jaeger_json import envelope, jaeger_traces
from tailscope_collector._otlp_tree import otlp_tree
from tailscope_collector._perfetto import perfetto_tree

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    import pyarrow as pa

    from tailscope_collector._query._queries import Queries
    from tailscope_collector._query._questions import Questions

MOST_SPANS: Final = 150_000
"""Spans of one answer: each takes about 3 kB of memory meanwhile."""

FORMATS: Final = ("otlp", "jaeger", "perfetto")

_TREES: Final[dict[str, Callable[[pa.Table], dict[str, Any]]]] = {
    "otlp": otlp_tree,
    "perfetto": perfetto_tree,
}


class Exported:
    """Writes traces in other formats; thread-safe."""

    def __init__(self, queries: Queries, questions: Questions) -> None:
        self._queries = queries
        self._questions = questions

    def trace(self, trace_id: str, form: str, *, abandoned: threading.Event | None = None) -> dict[str, Any]:
        """Return one trace in one of FORMATS; raises QueryError, NotFoundError where it is unknown."""
        if form not in FORMATS:
            raise QueryError(f"There is no format {form[:32]!r}; there are {', '.join(FORMATS)}.")
        if form in _TREES:
            return _TREES[form](self._questions.recorded(trace_id))
        return envelope(self.jaeger([trace_id], abandoned=abandoned) or _unknown(trace_id))

    def jaeger(self, wanted: list[str], *, abandoned: threading.Event | None = None) -> list[dict[str, Any]]:
        """Return traces as Jaeger's query service does, in this order; unknown ones are left out."""
        if not wanted:
            return []
        values = {"trace_ids": wanted, "most": MOST_SPANS + 1}
        spans = self._queries.ask(_sql.query("jaeger_spans"), values, traces=wanted, abandoned=abandoned)
        if spans.num_rows > MOST_SPANS:
            raise QueryError(
                f"The {len(wanted)} traces have over {MOST_SPANS} spans together; ask for fewer with limit.",
                code="too_large",
                status=413,
            )
        place = {trace_id: at for at, trace_id in enumerate(wanted)}
        return sorted(jaeger_traces(spans), key=lambda trace: place[trace["traceID"]])


def _unknown(trace_id: str) -> list[dict[str, Any]]:
    raise NotFoundError(f"There is no trace {trace_id[:64]}. It may not have arrived yet.")
