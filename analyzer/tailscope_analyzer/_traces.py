"""A set of requests with their ledger: what every analysis starts from.

Owns the two frames and where they come from: spans (computed when first asked for) or rows that a store has
kept. Never changes them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from tailscope.conventions import UNKNOWN_SERVICE
from tailscope_analyzer._arrow import frame_of
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._schema import LEDGER_SCHEMA, REQUESTS_SCHEMA, polars_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from tailscope_analyzer._ledger import Assembly


class Traces:
    """Give access to requests and their ledger; build one with `from_spans` or `from_parts`."""

    def __init__(self, spans: pa.Table | pl.DataFrame | None = None) -> None:
        self._spans = spans

    @classmethod
    def from_spans(cls, spans: pa.Table | pl.DataFrame) -> Traces:
        """Build from whole traces: any table with the columns of SPANS_SCHEMA, of which seven are required.

        Raises InputError when a required column is missing or an id is null.
        """
        traces = cls(spans)
        _ = traces._assembly.spans  # a table that cannot be read is refused here, not at the first question
        return traces

    @classmethod
    def from_parts(cls, requests: pa.Table | pl.DataFrame, ledger: pa.Table | pl.DataFrame) -> Traces:
        """Build from stored rows; columns that the views leave out (`counted`, `self_ns`...) are restored."""
        traces = cls()
        traces.__dict__["requests"] = _restored_requests(_frame(requests))
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

        return ledger_rows(self._assembly)

    @cached_property
    def _assembly(self) -> Assembly:
        from tailscope_analyzer._columns import read_spans
        from tailscope_analyzer._ledger import assemble

        assert self._spans is not None  # noqa: S101  from_parts fills both frames instead
        return assemble(read_spans(self._spans))

    def __len__(self) -> int:
        return len(self.requests)

    def __repr__(self) -> str:
        return f"<Traces: {len(self)} requests, {len(self.ledger)} ledger rows>"


def ledger(traces: Traces) -> pl.DataFrame:
    """Return the ledger of the traces: the rows of the view `stages`."""
    return traces.ledger


def _frame(table: pa.Table | pl.DataFrame) -> pl.DataFrame:
    return table if isinstance(table, pl.DataFrame) else frame_of(table)


def _restored_requests(frame: pl.DataFrame) -> pl.DataFrame:
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
    return frame.select(types.names()).cast(dict(types)).sort("start_unix_nano", "trace_id")  # type: ignore[arg-type]


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
