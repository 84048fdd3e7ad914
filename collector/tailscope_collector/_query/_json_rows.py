"""Rows of an answer as JSON that every parser reads.

Owns the spelling: time stamps in ISO 8601, maps as objects, bytes as hex, not-a-number and infinities as
null.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailscope_analyzer import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable


def json_rows(table: pa.Table) -> list[list[Any]]:
    """Return the rows as lists of JSON values."""
    columns: list[list[Any]] = []
    for column in table.columns:
        spell = _speller(column.type)
        values = _values(column)
        columns.append(
            values if spell is None else [None if value is None else spell(value) for value in values]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def _values(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        # Python's dates end with the year 9999 and begin with 1; DuckDB's do not.
        if pa.types.is_nested(column.type):
            said = f"JSON cannot carry a value of a column ({error}); ask for Arrow, or cast it to varchar."
            raise QueryError(said) from error
        values = column.cast(pa.string()).to_pylist()
    return values


def _speller(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return how values of a type are spelt; None where they are JSON already."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return None
    if pa.types.is_floating(kind):
        return lambda value: value if math.isfinite(value) else None
    if pa.types.is_map(kind):
        item = _optional(_speller(kind.item_type))
        return lambda value: {str(key): item(inner) for key, inner in value}
    if pa.types.is_struct(kind):
        shape: Any = kind  # the stubs leave its fields untyped
        inner = {field.name: _optional(_speller(field.type)) for field in shape.fields}
        return lambda value: {name: spell(value[name]) for name, spell in inner.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _optional(_speller(kind.value_type))
        return lambda value: [element(item) for item in value]
    return _scalar


def _optional(spell: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if spell is None:
        return lambda value: value
    return lambda value: None if value is None else spell(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, pa.MonthDayNano):
        months, days, nanoseconds = value
        return f"{months} months {days} days {nanoseconds / 1e9:g} s"
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, int | float | str | bool) else str(value)
