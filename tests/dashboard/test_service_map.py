"""What stands on the map of services, and which numbers it may give."""

from __future__ import annotations

from typing import Any

import polars as pl

from tailscope_dashboard import _service_map as maps

SECONDS = 10.0


def calls(*rows: dict[str, Any]) -> pl.DataFrame:
    usual: dict[str, Any] = {
        "caller": "a", "callee": "b", "operation": None, "traced": True,
        "calls": 400, "effective": 400, "errors": 0,
        "p50_ms": 4.0, "p99_ms": 9.0, "gap_ms": 0.5, "gap_effective": 400, "gap_p99_ms": 2.0,
    }  # fmt: skip
    return maps.known(pl.DataFrame([usual | row for row in rows], infer_schema_length=None), seconds=SECONDS)


def services(*rows: dict[str, Any]) -> pl.DataFrame:
    usual: dict[str, Any] = {
        "service": "a", "requests": 400, "effective": 400, "errors": 0,
        "p50_ms": 6.0, "p99_ms": 12.0, "own_ms": 2.0,
    }  # fmt: skip
    return maps.known(pl.DataFrame([usual | row for row in rows], infer_schema_length=None), seconds=SECONDS)


def drawn(edges: pl.DataFrame, nodes: pl.DataFrame, *chosen: str) -> dict[str, Any]:
    return maps.drawing(edges, nodes, seconds=SECONDS, chosen=chosen)


def test_rate_p99_and_gap_stand_on_an_edge() -> None:
    edge = drawn(calls({}), services({}))["edges"][0]

    assert edge["lines"] == ["40.0 /s", "p99 9.00 ms · gap 0.500 ms"]
    assert not edge["failing"]
    assert edge["spoken"].startswith("a to b: 400 calls, 40.0 /s, 0.00 % errors, p50 4.00 ms")


def test_errors_are_marked_and_written_from_one_in_a_hundred_on() -> None:
    one, three = (drawn(calls({"errors": n}), services({"errors": n})) for n in (3, 4))

    assert [one["edges"][0]["failing"], three["edges"][0]["failing"]] == [False, True]
    assert three["edges"][0]["lines"][0] == "40.0 /s · 1.0 % errors"
    assert three["services"][0]["lines"] == ["40.0 /s · p99 12.0 ms", "1.0 % errors"]


def test_of_too_few_calls_there_is_no_p99_but_an_n() -> None:
    edge = drawn(calls({"calls": 299, "effective": 299, "gap_ms": None}), services({}))["edges"][0]

    assert edge["lines"][1] == "n = 299"


def test_a_callee_without_spans_says_so() -> None:
    boxes = {box["name"]: box for box in drawn(calls({"callee": "db"}), services({}))["services"]}

    assert boxes["db"]["lines"] == ["sends no spans"]
    assert (boxes["db"]["traced"], boxes["a"]["traced"]) == (False, True)


def test_what_was_chosen_is_marked() -> None:
    edges = calls({}, {"callee": "c"})

    assert [edge["chosen"] for edge in drawn(edges, services({}), "a", "c")["edges"]] == [False, True]
    assert [box["chosen"] for box in drawn(edges, services({}), "b")["services"]] == [False, True, False]


def test_only_the_busiest_are_drawn() -> None:
    many = calls(*({"callee": f"s{n:03d}", "calls": 1000 - n} for n in range(100)))

    names = {box["name"] for box in drawn(many, services({}))["services"]}

    assert len(names) == maps.MOST_DRAWN
    assert "s000" in names
    assert "s099" not in names


def test_rows_of_operations_are_apart_from_those_of_edges() -> None:
    rows = calls({}, {"operation": "GET /x"}, {"callee": "c"}, {"callee": "c", "operation": "SET"})

    assert maps.edges_of(rows)["callee"].to_list() == ["b", "c"]
    assert maps.operations_of(rows, "a", "c")["operation"].to_list() == ["SET"]
