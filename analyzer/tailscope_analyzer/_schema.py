"""The tables that cross the border between the analyzer and whoever holds the spans.

Owns column names, order and types of spans (in), requests and ledger (out), in Arrow and in Polars. The
collector stores what is declared here; nothing in this module reads data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailscope_analyzer._arrow import frame_of

if TYPE_CHECKING:
    import polars as pl

ATTRIBUTES: Final[Any] = pa.map_(pa.utf8(), pa.utf8())
EVENT: Final[Any] = pa.struct(
    [("time_unix_nano", pa.int64()), ("name", pa.utf8()), ("attributes", ATTRIBUTES)]
)
LINK: Final[Any] = pa.struct([("trace_id", pa.utf8()), ("span_id", pa.utf8()), ("attributes", ATTRIBUTES)])


def _schema(columns: list[tuple[str, Any]]) -> pa.Schema:
    return pa.schema(columns)


SPANS_SCHEMA: Final = _schema(
    [
        ("trace_id", pa.utf8()),
        ("span_id", pa.utf8()),
        ("parent_span_id", pa.utf8()),  # null (or empty) is a root
        ("service", pa.utf8()),
        ("instance", pa.utf8()),
        ("host", pa.utf8()),
        ("operation", pa.utf8()),
        ("scope", pa.utf8()),
        ("kind", pa.utf8()),
        ("status", pa.utf8()),
        ("stage", pa.utf8()),  # what `stage_of` said; null is no stage
        ("start_unix_nano", pa.int64()),
        ("duration_ns", pa.int64()),  # signed: clocks step backwards
        ("attributes", ATTRIBUTES),
        ("events", pa.list_(EVENT)),
        ("links", pa.list_(LINK)),
        ("sample_weight", pa.float64()),  # how many spans this one stands for; null is 1
    ]
)

REQUIRED_COLUMNS: Final = (
    "trace_id",
    "span_id",
    "parent_span_id",
    "service",
    "operation",
    "start_unix_nano",
    "duration_ns",
)
"""What `Traces.from_spans` cannot do without; every other column may be missing and reads as null."""

REQUESTS_SCHEMA: Final = _schema(
    [
        ("trace_id", pa.utf8()),
        ("service", pa.utf8()),
        ("operation", pa.utf8()),
        ("start_time", pa.timestamp("us")),  # UTC, without a zone, as DuckDB's TIMESTAMP
        ("duration_ms", pa.float64()),
        ("status", pa.utf8()),
        ("http_status", pa.int64()),
        ("model", pa.utf8()),
        ("version", pa.utf8()),
        ("instance", pa.utf8()),
        ("ttft_ms", pa.float64()),
        ("tpot_ms", pa.float64()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("batch_size", pa.int64()),
        ("cold_start", pa.bool_()),
        ("span_count", pa.int64()),
        ("complete", pa.bool_()),  # root seen, no orphans, sane times
        ("sample_weight", pa.float64()),
        ("start_unix_nano", pa.int64()),
        ("duration_ns", pa.int64()),
        ("root_span_id", pa.utf8()),
        ("orphans", pa.int64()),  # spans whose parent is not in the trace
        ("root_missing", pa.bool_()),
        ("kind", pa.utf8()),  # of the entry span
        (
            "counted",
            pa.bool_(),
        ),  # enters percentiles: sane times, and a root or a SERVER/CONSUMER standing in
        ("skewed", pa.bool_()),  # a callee seems to start before its caller: their clocks differ
    ]
)
"""One row per request: the entry span of a trace. The first 19 columns are the SQL view `requests`."""

LEDGER_SCHEMA: Final = _schema(
    [
        ("trace_id", pa.utf8()),
        ("service", pa.utf8()),
        ("stage", pa.utf8()),
        ("category", pa.utf8()),
        ("operation", pa.utf8()),  # span name; of a gap, the edge as "caller -> callee"
        ("self_ns", pa.int64()),
        ("self_ms", pa.float64()),
    ]
)
"""One row per request and ledger key; `self_ns` of a request sums to its `duration_ns`."""


def polars_schema(schema: pa.Schema) -> pl.Schema:
    """Return the Polars types of an Arrow schema of plain columns."""
    return frame_of(schema.empty_table()).schema
