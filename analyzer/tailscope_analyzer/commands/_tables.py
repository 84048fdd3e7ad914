"""Rows of a query in the formats that people and other programs read.

Owns what becomes of values that a format has no word for: times are ISO 8601, maps are objects, bytes are
hex, and what is no number is null.
"""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from tailscope_analyzer._source import SqlResult

BINARY = ("arrow", "parquet")


def plain_rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows as values that JSON knows."""
    from tailscope_analyzer._arrow import values_of

    columns: list[list[Any]] = []
    for column in table.columns:
        convert = _converter(column.type)
        columns.append([convert(value) for value in values_of(column)])
    return [list(row) for row in zip(*columns, strict=True)]


def as_json(result: SqlResult) -> str:
    """Return an array of objects, a row a line."""
    lines = as_jsonl(result).splitlines()
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def as_jsonl(result: SqlResult) -> str:
    """Return an object a line."""
    from tailscope_analyzer._arrow import unique_names

    names = unique_names(result.columns)
    return "\n".join(
        json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False)
        for row in plain_rows(result.table)
    )


def as_csv(result: SqlResult) -> str:
    """Return RFC 4180 text with a header; nulls are empty, nested values are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_cell(value) for value in row] for row in plain_rows(result.table))
    return out.getvalue().rstrip("\n")


def as_table(result: SqlResult, width: int) -> str:
    """Return columns for a terminal; long values go on over several lines, none is cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from tailscope_analyzer._names import printable
    from tailscope_analyzer._terminal import drawn

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for field in _fields(result.table.schema):
        table.add_column(
            Text(field.name), justify="right" if _is_number(field.type) else "left", overflow="fold"
        )
    for row in plain_rows(result.table):
        table.add_row(*(Text(printable(_cell(value))) for value in row))
    count = len(result.table)
    return drawn(table, width=width, colour=False).strip("\n") + f"\n{count:,} row{'' if count == 1 else 's'}"


def as_bytes(result: SqlResult, kind: str) -> bytes:
    """Return an Arrow IPC stream or a Parquet file."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    if kind == "parquet":
        import pyarrow.parquet

        from tailscope_analyzer._arrow import plain_table

        parquet: Any = pyarrow.parquet
        parquet.write_table(plain_table(result.table), sink)
    else:
        with pa.ipc.new_stream(sink, result.table.schema) as writer:
            writer.write_table(result.table)
    return sink.getvalue().to_pybytes()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.15g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fields(of: Any) -> list[Any]:
    """Return the fields of a schema or a struct."""
    return list(of)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _converter(kind: Any) -> Callable[[Any], Any]:
    """Return the function from a Python value of an Arrow type to one that JSON knows."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        item = _converter(kind.item_type)
        return lambda value: None if value is None else {str(key): item(entry) for key, entry in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _converter(kind.value_type)
        return lambda value: None if value is None else [element(entry) for entry in value]
    if pa.types.is_struct(kind):
        fields = {field.name: _converter(field.type) for field in _fields(kind)}
        return lambda value: None if value is None else {name: of(value[name]) for name, of in fields.items()}
    return _scalar


def _scalar(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else value
