"""A set of requests with their ledger: what every analysis starts from.

Owns the two frames and where they come from: spans (computed when first asked for) or rows that a store has
kept. Never changes them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope.conventions import UNKNOWN_SERVICE
from tailscope_analyzer._arrow import frame_of, pc
from tailscope_analyzer._coded import CodedLedger
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._schema import LEDGER_SCHEMA, REQUESTS_SCHEMA, SPANS_SCHEMA, polars_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._ledger import Assembly
    from tailscope_analyzer._servers import Servers

MOST_TRACES: Final = 50_000
"""Of so many requests `spans` holds the spans; of more, those of the latest. About 1 kB a span."""
MOST_SPANS: Final = 1_000_000
"""Spans that a store is asked for at once: about 0.7 GB with what is made of them."""


class Traces:
    """Give access to requests and their ledger; build one with `from_spans` or `from_parts`."""

    def __init__(
        self, spans: pa.Table | pl.DataFrame | None = None, *, servers: Servers | None = None
    ) -> None:
        self._spans = spans
        self._servers = servers
        self._spans_of: Callable[[pl.Series], pa.Table] | None = None
        self.coded: CodedLedger | None = None
        """The ledger as numbers, beside `requests`, where a store gave it so."""

    @classmethod
    def from_spans(cls, spans: pa.Table | pl.DataFrame, *, servers: Servers | None = None) -> Traces:
        """Build from whole traces: any table with the columns of SPANS_SCHEMA, of which seven are required.

        `servers` (of `load_servers`) tells what spans of other servers mean; the known ones if not given.
        Raises InputError when a required column is missing or an id is null.
        """
        traces = cls(spans, servers=servers)
        _ = traces._assembly.spans  # a table that cannot be read is refused here, not at the first question
        return traces

    @classmethod
    def from_parts(
        cls,
        requests: pa.Table | pl.DataFrame,
        ledger: pa.Table | pl.DataFrame | CodedLedger,
        *,
        spans: pa.Table | Callable[[pl.Series], pa.Table] | None = None,
    ) -> Traces:
        """Build from stored rows; columns that the views leave out (`counted`, `self_ns`...) are restored.

        A coded ledger names requests by their place in `requests`; it has every column of `keys`.
        `spans` is a table of the same traces, or what gives one when it is asked for: called with trace ids,
        it returns their spans and those of traces of the same time that are no requests.
        """
        traces = cls(None if callable(spans) else spans)
        traces._spans_of = spans if callable(spans) else None
        traces.__dict__["requests"], place = _restored_requests(_frame(requests))
        if isinstance(ledger, CodedLedger):
            traces.coded = ledger.moved(place)
        else:
            traces.__dict__["ledger"] = _restored_ledger(_frame(ledger))
        return traces

    @cached_property
    def requests(self) -> pl.DataFrame:
        """One row per request, in order of start; the columns of REQUESTS_SCHEMA."""
        from tailscope_analyzer._requests import request_rows

        return request_rows(self._assembly)

    @cached_property
    def ledger(self) -> pl.DataFrame:
        """One row per request and key, the columns of LEDGER_SCHEMA; a request's rows sum to its duration.

        A request whose own times cannot be true (no start, negative, longer than a day) has no rows.
        """
        from tailscope_analyzer._ledger import ledger_rows

        if self.coded is not None:
            return self.coded.frame(self.requests["trace_id"])
        return ledger_rows(self._assembly)

    @cached_property
    def spans(self) -> pa.Table:
        """All spans, with those of loading and batches, as SPANS_SCHEMA; empty where nobody can give them.

        From a store: of the latest MOST_TRACES requests.
        """
        return self.spans_of(self.requests["trace_id"].tail(MOST_TRACES))

    def spans_of(self, trace_ids: pl.Series) -> pa.Table:
        """Return the spans of some requests and all those of traces that are no requests."""
        if self._spans_of is not None:
            return self._spans_of(self._affordable(trace_ids)).select(SPANS_SCHEMA.names)
        if self._spans is None:
            return SPANS_SCHEMA.empty_table()
        whole = self._staged
        if len(trace_ids) == len(self.requests):
            return whole
        others = self.requests.filter(~pl.col("trace_id").is_in(trace_ids.implode()))["trace_id"]
        left_out: Any = pa.array(others.to_list(), pa.utf8())
        found: Any = pc.is_in(whole["trace_id"].cast(pa.utf8()), value_set=left_out)
        return whole.filter(pc.invert(found))

    def trees(self, *, fetch: bool = True) -> Assembly | None:
        """Return the trees of all spans; None where nobody has any, or where they had to be fetched first."""
        if self._spans is not None:
            return self._assembly
        return self.trees_of(self.spans) if fetch and len(self.spans) else None

    def trees_of(self, spans: pa.Table) -> Assembly:
        """Return the trees of some of these spans, read as these traces read theirs."""
        return Traces.from_spans(spans, servers=self._servers)._assembly

    def _affordable(self, trace_ids: pl.Series) -> pl.Series:
        """Return the first of the requests, as many as have MOST_SPANS spans together."""
        counts = self.requests.select("trace_id", "span_count").unique("trace_id", keep="first")
        wanted = trace_ids.to_frame("trace_id").join(counts, on="trace_id", how="left", maintain_order="left")
        return wanted.filter(pl.col("span_count").fill_null(1).cum_sum() <= MOST_SPANS)["trace_id"]

    @property
    def can_give_spans(self) -> bool:
        """Whether `spans` can hold anything: the traces were built from spans, or a store can give them."""
        return self._spans is not None or self._spans_of is not None

    @cached_property
    def _staged(self) -> pa.Table:
        """The span table with every column, once each, and the stages as they were found."""
        spans = self._assembly.spans
        stage = pl.Series([*spans.stage.values, None], dtype=pl.String).gather(
            pl.Series(spans.stage.codes[: spans.recorded] % (len(spans.stage.values) + 1))
        )
        column: Any = stage
        number = spans.table.column_names.index("stage")
        return spans.table.set_column(number, "stage", column.to_arrow()).select(SPANS_SCHEMA.names)

    @cached_property
    def _assembly(self) -> Assembly:
        from tailscope_analyzer._columns import read_spans
        from tailscope_analyzer._ledger import assemble

        assert self._spans is not None  # noqa: S101  from_parts fills the frames instead
        return assemble(read_spans(self._spans, self._servers))

    def __len__(self) -> int:
        return len(self.requests)

    def __repr__(self) -> str:
        rows = self.ledger if self.coded is None else self.coded
        return f"<Traces: {len(self)} requests, {len(rows)} ledger rows>"


def ledger(traces: Traces) -> pl.DataFrame:
    """Return the ledger of the traces: the rows of the view `stages`."""
    return traces.ledger


def _frame(table: pa.Table | pl.DataFrame) -> pl.DataFrame:
    return table if isinstance(table, pl.DataFrame) else frame_of(table)


def _restored_requests(frame: pl.DataFrame) -> tuple[pl.DataFrame, Ints]:
    """Return the rows in order of start, and of each given row its place among them."""
    _need(frame, ("trace_id", "service", "operation", "start_time", "duration_ms"), "requests")
    frame = frame.with_columns(
        pl.col("service").fill_null(UNKNOWN_SERVICE),
        duration_ms=pl.when(pl.col("duration_ms").cast(pl.Float64).is_finite()).then("duration_ms"),
    )
    nanoseconds = (pl.col("duration_ms") * 1e6).round().cast(pl.Int64)
    missing = {
        "sample_weight": pl.lit(1.0),
        "start_unix_nano": pl.col("start_time").cast(pl.Datetime("us")).cast(pl.Int64) * 1000,
        "duration_ns": nanoseconds,
        "counted": pl.col("duration_ms").is_not_null(),
    }
    frame = frame.with_columns(
        **{name: value for name, value in missing.items() if name not in frame.columns}
    )
    types = polars_schema(REQUESTS_SCHEMA)
    frame = frame.with_columns(
        pl.lit(None).alias(name) for name in types.names() if name not in frame.columns
    )
    frame = frame.select(types.names()).cast(dict(types))  # type: ignore[arg-type]
    order = frame.select(pl.arg_sort_by("start_unix_nano", "trace_id")).to_series()
    place = np.empty(len(frame), dtype=np.int64)
    place[order.to_numpy()] = np.arange(len(frame))
    return frame[order], place


def _restored_ledger(frame: pl.DataFrame) -> pl.DataFrame:
    _need(frame, ("trace_id", "service", "stage", "category", "operation", "self_ms"), "stages")
    if "self_ns" not in frame.columns:
        finite = pl.when(pl.col("self_ms").cast(pl.Float64).is_finite()).then("self_ms")
        frame = frame.with_columns(self_ns=(finite * 1e6).round().cast(pl.Int64))
    # Time that is no number, or of nobody knows which stage, is not in the ledger: it counts as untraced.
    frame = frame.with_columns(pl.col("service").fill_null(UNKNOWN_SERVICE))
    frame = frame.drop_nulls(["trace_id", "stage", "category", "self_ns"])
    types = polars_schema(LEDGER_SCHEMA)
    return frame.select(types.names()).cast(dict(types))  # type: ignore[arg-type]


def _need(frame: pl.DataFrame, names: tuple[str, ...], view: str) -> None:
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"Rows of {view} have no column {', '.join(missing)}. They have: {', '.join(frame.columns)}."
        )
