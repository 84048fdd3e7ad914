"""The files of a sealed segment: their columns, their types, how they reach the disk.

Owns the schemas. Types are those that DuckDB, Polars, Spark and ClickHouse read alike: hex text, signed
integers, microsecond timestamps, maps of text. Never knows which segments there are.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tailscope_analyzer import REQUESTS_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

COMPRESSION: Final = "zstd"
LEVEL: Final = 1
"""Level 3 takes 2 % less room and 10 % more time."""

_TEXT: Final = pa.string()
_INT: Final = pa.int64()
_MAP: Final[Any] = pa.map_(pa.string(), pa.string())
_EVENT: Final[Any] = pa.struct(
    [
        ("time_unix_nano", _INT),
        ("name", _TEXT),
        ("attributes", _MAP),
        ("attribute_types", _TEXT),
        ("dropped_attributes_count", _INT),
    ]
)
_LINK: Final[Any] = pa.struct(
    [
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("trace_state", _TEXT),
        ("attributes", _MAP),
        ("attribute_types", _TEXT),
        ("dropped_attributes_count", _INT),
        ("flags", _INT),
    ]
)


def _schema(columns: list[tuple[str, Any]]) -> pa.Schema:
    return pa.schema(columns)


SPANS: Final = _schema(
    [
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("parent_span_id", _TEXT),
        ("service", _TEXT),
        ("instance", _TEXT),
        ("host", _TEXT),
        ("operation", _TEXT),
        ("kind", _TEXT),
        ("start_time", pa.timestamp("us")),
        ("start_unix_nano", _INT),
        ("duration_ns", _INT),  # null where start or end were not set
        ("status", _TEXT),
        ("status_message", _TEXT),
        ("stage", _TEXT),
        ("scope", _TEXT),
        ("attributes", _MAP),
        ("resource", _MAP),
        ("events", pa.list_(_EVENT)),
        ("links", pa.list_(_LINK)),
        ("dropped_attributes_count", _INT),
        ("dropped_events_count", _INT),
        ("dropped_links_count", _INT),
        ("http_status", _INT),
        ("model", _TEXT),
        ("model_version", _TEXT),
        ("batch_size", _INT),
        ("gpu_time_ms", pa.float64()),
        ("input_tokens", _INT),
        ("output_tokens", _INT),
        ("peer", _TEXT),
        ("attribute_types", _TEXT),
        ("trace_state", _TEXT),
        ("flags", _INT),
        ("sample_weight", pa.float64()),  # null is 1
        ("batch_seq", _INT),
        ("raw_duration_ns", _INT),  # end minus start as sent, where duration_ns is null
        ("scope_version", _TEXT),
        ("resource_types", _TEXT),
        ("resource_schema_url", _TEXT),
        ("scope_attributes", _MAP),
        ("scope_types", _TEXT),
        ("scope_schema_url", _TEXT),
    ]
)
"""Columns of spans.parquet, sorted by trace and start: those of the view `spans`, and what exports need."""

_REQUESTS_SCHEMA: Final[Any] = REQUESTS_SCHEMA
REQUESTS: Final[pa.Schema] = _REQUESTS_SCHEMA.append(pa.field("segment", _INT))
"""Columns of requests.parquet, sorted by start."""

LEDGER: Final = _schema(
    [
        ("trace_id", _TEXT),
        ("start_unix_nano", _INT),
        ("service", _TEXT),
        ("stage", _TEXT),
        ("category", _TEXT),
        ("operation", _TEXT),
        ("self_ns", _INT),
        ("segment", _INT),
    ]
)
"""Columns of ledger.parquet, sorted by the start of the request."""

METRICS: Final = _schema(
    [
        ("time", pa.timestamp("us")),
        ("time_unix_nano", _INT),
        ("service", _TEXT),
        ("instance", _TEXT),
        ("host", _TEXT),
        ("metric", _TEXT),
        ("unit", _TEXT),
        ("value", pa.float64()),
        ("attributes", _MAP),
        ("kind", _TEXT),
    ]
)
"""Columns of metrics.parquet, sorted by metric and time."""

FILES: Final = {"spans": SPANS, "requests": REQUESTS, "ledger": LEDGER, "metrics": METRICS}


class Writer:
    """Writes one file, a row group a call; a context manager that leaves it whole and on the disk."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        """Append a row group; columns are put in the order and the types of the schema.

        A dictionary is written as it is: unpacking it, to be packed again, would take half of the time.
        """
        whole: Any = table
        fields: list[Any] = []
        declarations: list[Any] = list(self._schema)
        for declared in declarations:
            given = whole.field(declared.name)
            fields.append(given if pa.types.is_dictionary(given.type) else declared)
        schema = pa.schema(fields)
        table = table.select(schema.names).cast(schema)
        self._open(schema).write_table(table, row_group_size=max(1, table.num_rows))
        self.rows += table.num_rows

    def _open(self, schema: pa.Schema) -> Any:
        if self._writer is None:
            # Without Arrow's own schema beside it: how we write is not what a reader must see.
            self._writer = pq.ParquetWriter(
                self.path, schema, compression=COMPRESSION, compression_level=LEVEL, store_schema=False
            )
        return self._writer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open(self._schema).close()
        if error is None:
            sync(self.path)


def write_empty(folder: Path) -> None:
    """Write the files of a segment that holds nothing, where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in FILES.items():
        path = folder / f"{name}.parquet"
        if not path.exists():
            half = path.with_suffix(".tmp")
            with Writer(half, schema):
                pass
            half.replace(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
