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
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from rich.console import RenderableType

    from tailscope_analyzer._answer import SqlResult

BINARY = ("arrow", "parquet")
BROKEN_OFF: Final = b"\xff\xff\xff\xff\x00\x01\x00\x00"
"""The head of an Arrow message that does not follow: a stream that just ends is a legal one."""
ROW_GROUP_ROWS: Final = 100_000
ROW_GROUP_BYTES: Final = 32 << 20
LEAST_COLUMN: Final = 10
"""Letters a line that a column of longer values keeps at least; with fewer, nobody reads them."""
BETWEEN_COLUMNS: Final = 3
"""Letters that separate two columns of a table."""


def plain_rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows as values that JSON knows."""
    from tailscope_analyzer._arrow import values_of

    columns: list[list[Any]] = []
    for column in table.columns:
        convert = _converter(column.type)
        columns.append([convert(value) for value in values_of(column)])
    return [list(row) for row in zip(*columns, strict=True)]


def json_parts(result: SqlResult) -> Iterator[str]:
    """Yield an array of objects, a row a line; as the rows come."""
    before = "["
    for line in _objects(result):
        yield f"{before}\n{line}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"


def jsonl_parts(result: SqlResult) -> Iterator[str]:
    """Yield an object a line, as the rows come."""
    for line in _objects(result):
        yield line + "\n"


def csv_parts(result: SqlResult) -> Iterator[str]:
    """Yield RFC 4180 text with a header, as the rows come; nulls are empty, nested values are JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.columns)
    for rows in _row_lists(result):
        writer.writerows([_cell(value) for value in row] for row in rows)
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def _objects(result: SqlResult) -> Iterator[str]:
    from tailscope_analyzer._arrow import unique_names

    names = unique_names(result.columns)
    for rows in _row_lists(result):
        for row in rows:
            yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False, allow_nan=False)


def _row_lists(result: SqlResult) -> Iterator[list[list[Any]]]:
    import pyarrow as pa

    for batch in result.batches():
        yield plain_rows(pa.Table.from_batches([batch]))


def as_table(result: SqlResult, width: int) -> str:
    """Return columns for a terminal; long values go on over several lines, none is cut.

    Where there are more columns than the width has room for, each value has a line of its own.
    """
    from tailscope_analyzer._names import printable
    from tailscope_analyzer._terminal import drawn

    fields = _fields(result.table.schema)
    rows = [[printable(_cell(value)) for value in row] for row in plain_rows(result.table)]
    names = [printable(field.name) for field in fields]
    if _fits([names, *rows], width):
        parts = _grid(names, [_is_number(field.type) for field in fields], rows)
    else:
        parts = _records(names, rows)
    lines = drawn(*parts, width=width, colour=False).strip("\n")
    counted = f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"
    return f"{lines}\n{counted}" if lines else counted


def _fits(rows: list[list[str]], width: int) -> bool:
    """Tell whether every column can have its values, or a readable part of them, on a line."""
    from rich.cells import cell_len

    least = [max(min(cell_len(cell), LEAST_COLUMN) for cell in column) for column in zip(*rows, strict=True)]
    return sum(least) + BETWEEN_COLUMNS * len(least) <= width


def _grid(names: list[str], right: list[bool], rows: list[list[str]]) -> list[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, is_right in zip(names, right, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return [table]


def _records(names: list[str], rows: list[list[str]]) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for number, row in enumerate(rows, 1):
        record = Table(box=None, show_header=False, pad_edge=False)
        record.add_column(overflow="fold")
        record.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            record.add_row(Text(name), Text(cell))
        parts += [Text(f"── row {number:,} ──"), record]
    return parts


def write_arrow(result: SqlResult, out: Any) -> None:
    """Write an Arrow IPC stream as the rows come; it cannot be read where they end too early."""
    import pyarrow as pa

    writer: Any = pa.ipc.new_stream(pa.PythonFile(out, "w"), result.schema)
    try:
        for batch in result.batches():
            writer.write_batch(batch)
    except BaseException:
        out.write(BROKEN_OFF)
        raise
    writer.close()


def write_parquet(result: SqlResult, out: Any) -> None:
    """Write a Parquet file, a row group at a time; it has no footer where the rows end too early."""
    import pyarrow as pa
    import pyarrow.parquet

    from tailscope_analyzer._arrow import plain_table

    parquet: Any = pyarrow.parquet
    pipe: Any = _Pipe(out)
    schema = plain_table(result.schema.empty_table()).schema
    writer = parquet.ParquetWriter(pa.PythonFile(pipe, "w"), schema)
    try:
        for group in _row_groups(result):
            writer.write_table(plain_table(group))
    except BaseException:
        pipe.is_broken = True  # the writer ends the file even when it is only forgotten
        raise
    writer.close()


def _row_groups(result: SqlResult) -> Iterator[pa.Table]:
    import pyarrow as pa

    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in result.batches():
        group.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group, rows, size = [], 0, 0
    if group:
        yield pa.Table.from_batches(group)


class _Pipe:
    """A file that takes nothing more once it is broken."""

    closed = False

    def __init__(self, out: Any) -> None:
        self._out = out
        self.is_broken = False

    def write(self, part: Any) -> int:
        return len(part) if self.is_broken else int(self._out.write(part))

    def flush(self) -> None:
        self._out.flush()

    def close(self) -> None:
        """Leave it open: it is the caller's."""


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
