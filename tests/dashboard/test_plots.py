"""Which chart is made of an answer of the SQL page, and what the editor completes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from tailscope_dashboard import _editor as editor
from tailscope_dashboard import _plots as plots

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).replace(tzinfo=None)  # as DuckDB's TIMESTAMP comes


def answer(rows: int = 4, **columns: Any) -> pl.DataFrame:
    usual = {
        "operation": ["a", "b"] * (rows // 2),
        "n": list(range(rows)),
        "p99_ms": [float(10 * row) for row in range(rows)],
        "took": [timedelta(seconds=1)] * rows,
        "ids": [["x"]] * rows,
    }
    return pl.DataFrame({**usual, **columns})


def chosen(rows: pl.DataFrame, **given: str | None) -> plots.Choice | None:
    usual: dict[str, str | None] = {"kind": "bars", "x": None, "y": None, "by": None}
    return plots.choice(rows, **(usual | given))


def test_names_go_across_and_a_latency_or_else_the_last_number_up() -> None:
    assert chosen(answer(share=[0.5] * 4)) == plots.Choice("bars", "operation", "p99_ms", None)
    assert chosen(answer().drop("p99_ms")) == plots.Choice("bars", "operation", "n", None)


def test_what_was_asked_for_is_drawn_where_the_answer_has_it() -> None:
    rows = answer()

    assert chosen(rows, kind="line", x="n", y="n", by="operation") == plots.Choice(
        "line", "n", "n", "operation"
    )
    assert chosen(rows, x="ids", y="operation", by="gone") == plots.Choice(
        "bars", "operation", "p99_ms", None
    )
    assert chosen(rows, by="p99_ms") == plots.Choice("bars", "operation", "p99_ms", None)


@pytest.mark.parametrize(
    "rows",
    [pl.DataFrame({"n": [1]}), pl.DataFrame({"a": ["x"], "b": ["y"]}), pl.DataFrame()],
    ids=["one column", "no number", "nothing"],
)
def test_what_has_no_number_beside_a_name_is_a_table(rows: pl.DataFrame) -> None:
    assert chosen(rows) is None


@pytest.mark.parametrize("kind", [None, "table", "pie"])
def test_a_table_is_a_table(kind: str | None) -> None:
    assert chosen(answer(), kind=kind) is None


def test_rows_without_a_number_are_not_drawn() -> None:
    rows = answer(p99_ms=[1.0, None, float("nan"), float("inf")])

    drawn, left_out = plots.drawable(rows, plots.Choice("points", "n", "p99_ms", None))

    assert drawn.rows() == [(0, 1.0)]
    assert left_out is None


def test_too_many_bars_and_series_are_left_out_and_said() -> None:
    many = pl.DataFrame({"name": [f"{n}" for n in range(100)], "v": [1.0] * 100})
    bars, said = plots.drawable(many, plots.Choice("bars", "name", "v", None))
    series, also_said = plots.drawable(many.with_row_index("at"), plots.Choice("line", "at", "v", "name"))

    assert (bars.height, said) == (60, "Drawn: the first 60 of 100 bars.")
    assert (series["by"].n_unique(), also_said) == (8, "Drawn: the 8 of 100 series with most rows.")


@pytest.mark.parametrize("kind", plots.KINDS[1:])
@pytest.mark.parametrize(
    ("x", "by"), [("operation", None), ("at", "stage"), ("n", "operation"), ("yes", "operation")]
)
def test_every_kind_of_column_makes_a_chart_without_names_of_others(
    kind: str, x: str, by: str | None
) -> None:
    times = [NOON + timedelta(minutes=minute) for minute in range(4)]
    rows = answer(at=times, stage=["queue", None, "inference", "queue"], yes=[True, False, True, False])
    rows = rows.rename({"p99_ms": "p[99]:Q.ms"})
    choice = plots.Choice(kind, x, "p[99]:Q.ms", by)

    drawn, _ = plots.drawable(rows, choice)
    made = plots.plot(drawn, choice, theme="dark").to_dict()

    assert drawn.columns == ["x", "y"] if by is None else ["x", "y", "by"]
    assert {channel["field"] for channel in made["encoding"].values() if "field" in channel} <= {
        "x",
        "y",
        "by",
    }
    assert made["encoding"]["y"]["axis"]["title"] == "p[99]:Q.ms"


def test_stages_keep_their_colours() -> None:
    rows = answer(stage=["queue", "inference", "queue", "inference"])
    choice = plots.Choice("bars", "n", "p99_ms", "stage")

    made = plots.plot(plots.drawable(rows, choice)[0], choice, theme="light").to_dict()

    assert made["encoding"]["color"]["scale"] == {
        "domain": ["queue", "inference"],
        "range": ["#cc6d1b", "#3c57d1"],
    }


def test_the_editor_knows_views_columns_macros_and_keywords() -> None:
    columns = pl.DataFrame({"view": ["requests"], "column": ["duration_ms"], "type": ["DOUBLE"]})

    words = {word["word"]: word for word in editor.words(columns)}

    assert words["requests"]["kind"] == "view"
    assert words["duration_ms"] == {
        "word": "duration_ms",
        "kind": "column",
        "view": "requests",
        "note": "double",
    }
    assert words["quantile_w"]["call"] == "quantile_w(x, w, q)"
    assert words["select"]["kind"] == "keyword"


@pytest.mark.parametrize(
    ("kind", "plain"),
    [("VARCHAR", "varchar"), ("MAP(VARCHAR, VARCHAR)", "map"), ("STRUCT(a BIGINT)[]", "list")],
)
def test_a_type_is_one_word(kind: str, plain: str) -> None:
    assert editor.plain_type(kind) == plain
