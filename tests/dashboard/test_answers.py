"""What the dashboard makes of answers: CSV, Parquet and times."""

from __future__ import annotations

import io
from datetime import datetime
from typing import TYPE_CHECKING

import polars as pl

from tailscope_analyzer import Selection
from tailscope_dashboard import _data as data

if TYPE_CHECKING:
    import pytest


def test_csv_keeps_text_with_commas_quotes_and_line_breaks() -> None:
    rows = pl.DataFrame({"note": ['a,b "c"\nd'], "n": [1]})

    assert pl.read_csv(data.csv(rows)).rows() == [('a,b "c"\nd', 1)]


def test_csv_writes_nested_values_as_json() -> None:
    rows = pl.DataFrame({"n": [1, 2], "attributes": [{"k": "v"}, None], "ids": [["a"], []]})

    read = pl.read_csv(data.csv(rows))

    assert read.rows() == [(1, '{"k": "v"}', '["a"]'), (2, "null", "[]")]


def test_parquet_keeps_nested_values_as_they_are() -> None:
    rows = pl.DataFrame({"n": [1, 2], "ids": [["a"], []], "at": [datetime(2026, 11, 30), None]})  # noqa: DTZ001

    assert pl.read_parquet(io.BytesIO(data.parquet(rows))).rows() == rows.rows()


def test_moment_of_the_store_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    naive = datetime(2026, 11, 30, 12, 0)  # noqa: DTZ001  as DuckDB's TIMESTAMP comes
    rows = pl.DataFrame({"requests": [1], "first_start": [naive], "last_start": [naive], "sampled": [False]})
    monkeypatch.setattr(data, "named", lambda _name, _values: rows)

    found = data.extent(Selection())

    assert found.first is not None
    assert found.first.isoformat() == "2026-11-30T12:00:00+00:00"
