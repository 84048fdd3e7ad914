"""What the dashboard makes of answers: CSV and names of types."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest

from tailscope_analyzer import Selection
from tailscope_dashboard import _data as data


def test_csv_keeps_text_with_commas_quotes_and_line_breaks() -> None:
    rows = pl.DataFrame({"note": ['a,b "c"\nd'], "n": [1]})

    assert pl.read_csv(data.csv(rows)).rows() == [('a,b "c"\nd', 1)]


def test_csv_writes_nested_values_as_json() -> None:
    rows = pl.DataFrame({"n": [1, 2], "attributes": [{"k": "v"}, None], "ids": [["a"], []]})

    read = pl.read_csv(data.csv(rows))

    assert read.rows() == [(1, '{"k": "v"}', '["a"]'), (2, "null", "[]")]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (pl.Int64(), "integer"),
        (pl.Float64(), "number"),
        (pl.String(), "text"),
        (pl.Boolean(), "yes/no"),
        (pl.Datetime(), "time"),
        (pl.List(pl.String()), "list"),
    ],
)
def test_type_of_a_column_is_a_plain_word(kind: pl.DataType, word: str) -> None:
    assert data.type_word(kind) == word


def test_moment_of_the_store_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    naive = datetime(2026, 11, 30, 12, 0)  # noqa: DTZ001  as DuckDB's TIMESTAMP comes
    rows = pl.DataFrame({"requests": [1], "first_start": [naive], "last_start": [naive], "sampled": [False]})
    monkeypatch.setattr(data, "named", lambda _name, _values: rows)

    found = data.extent(Selection())

    assert found.first is not None
    assert found.first.isoformat() == "2026-11-30T12:00:00+00:00"
