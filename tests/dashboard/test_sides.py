"""How the Compare page reads what is compared, and what it proposes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tailscope_dashboard import _sides as sides
from tailscope_dashboard._scope import Scope

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SCOPE = Scope("ranker", None, "status = 'ok'", NOON, NOON + timedelta(minutes=10))
HOUR = "2026-11-30T12:00:00Z/2026-11-30T13:00:00Z"


@pytest.mark.parametrize(
    ("given", "texts", "versions", "way"),
    [
        (None, (None, None), 2, "version"),
        (None, (None, None), 1, "time"),
        (None, (HOUR, None), 2, "time"),
        (None, (None, "instance=gpu-1"), 2, "instance"),
        (None, ("input_tokens < 1000", None), 2, "condition"),
        ("model", (HOUR, None), 2, "model"),
        ("nonsense", (None, None), 1, "time"),
    ],
)
def test_what_is_compared_by(
    given: str | None, texts: tuple[str | None, str | None], versions: int, way: str
) -> None:
    assert sides.way_of(given, texts, versions=versions) == way


def test_a_window_is_read_as_it_is_written() -> None:
    window = sides.window_of(HOUR)

    assert window is not None
    assert window == sides.Window(NOON, NOON + timedelta(hours=1))
    assert window.text() == HOUR


@pytest.mark.parametrize(
    "text", [None, "", "2026-11-30T12:00:00Z", "a/b", "2026-11-30T13:00:00Z/2026-11-30T12:00:00Z"]
)
def test_what_is_no_window_is_none(text: str | None) -> None:
    assert sides.window_of(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("version=1.4", "1.4"),
        ("version=a=b", "a=b"),
        ("version == 1", None),
        ("model=1", None),
        ("version='1'", None),
        ("version=", None),
        (None, None),
    ],
)
def test_a_value_of_a_column_is_read(text: str | None, value: str | None) -> None:
    assert sides.value_of(text, "version") == value


def test_halves_meet_in_the_middle() -> None:
    first, second = sides.halves(SCOPE)

    assert (first.since, first.until) == (NOON, NOON + timedelta(minutes=5))
    assert (second.since, second.until) == (first.until, SCOPE.until)


@pytest.mark.parametrize(("start", "end", "held"), [(4, 6, (0, 4)), (0, 4, (4, 10)), (0, 10, (0, 0))])
def test_a_dragged_window_is_held_against_what_was_before_it(
    start: int, end: int, held: tuple[int, int]
) -> None:
    dragged = sides.Window(NOON + timedelta(minutes=start), NOON + timedelta(minutes=end))

    found = sides.before(dragged, SCOPE)

    assert (found.since - NOON, found.until - NOON) == tuple(timedelta(minutes=minute) for minute in held)


def test_the_two_newest_values_are_proposed() -> None:
    assert sides.newest_two(["1", "2", "3"]) == ("2", "3")
    assert sides.newest_two(["1"]) == ("1", None)
    assert sides.newest_two([]) == (None, None)


def test_a_side_is_within_the_selection() -> None:
    window, value, condition = (
        sides.selection_of(side, way, SCOPE)
        for side, way in ((HOUR, "time"), ("version=it's", "version"), ("batch_size > 4 -- big", "condition"))
    )

    assert window is not None
    assert value is not None
    assert condition is not None
    assert (window.service, window.since, window.until) == ("ranker", NOON, NOON + timedelta(hours=1))
    assert value.where == "(status = 'ok'\n) and (version = 'it''s'\n)"
    assert condition.where == "(status = 'ok'\n) and (batch_size > 4 -- big\n)"
    assert (value.since, value.until) == (SCOPE.since, SCOPE.until)


def test_a_side_that_cannot_be_read_is_none() -> None:
    assert sides.selection_of("nonsense", "time", SCOPE) is None
    assert sides.selection_of("", "condition", SCOPE) is None
    assert sides.selection_of("model=x", "version", SCOPE) is None


def test_only_our_own_columns_get_into_a_query() -> None:
    with pytest.raises(ValueError, match="no column to compare by"):
        sides.column_of("1; drop table x")
