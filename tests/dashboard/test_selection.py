"""The selection in the address: windows, filters, and the links that keep them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import streamlit as st
from hypothesis import assume, given
from hypothesis import strategies as hs

from tailscope_dashboard import _address as address
from tailscope_dashboard import _listing as listing
from tailscope_dashboard._scope import (
    Extent,
    Scope,
    misread,
    percentile_name,
    read_scope,
    usual_window,
    window_name,
)

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
EXTENT = Extent(1000, NOON, NOON + timedelta(hours=2))


@pytest.fixture(autouse=True)
def url(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Stand in for the address bar, which only a running page has."""
    parameters: dict[str, str] = {}
    monkeypatch.setattr(st, "query_params", parameters)
    return parameters


def scope(since: datetime, until: datetime) -> Scope:
    return Scope(None, None, None, since, until)


def test_no_window_is_all_that_is_stored() -> None:
    found = read_scope(EXTENT)

    assert (found.since, found.until) == (NOON, NOON + timedelta(hours=2, microseconds=1))


def test_window_ends_at_the_newest_request_and_not_now(url: dict[str, str]) -> None:
    url["window"] = "15m"

    found = read_scope(EXTENT)

    assert found.until == NOON + timedelta(hours=2, microseconds=1)
    assert found.until - found.since == timedelta(minutes=15)


def test_window_longer_than_the_data_begins_with_the_data(url: dict[str, str]) -> None:
    url["window"] = "24h"

    assert read_scope(EXTENT).since == NOON


def test_two_moments_win_over_a_named_window(url: dict[str, str]) -> None:
    url |= {"window": "5m", "since": "2026-11-30T12:10:00Z", "until": "2026-11-30T12:20:00+00:00"}

    found = read_scope(EXTENT)

    assert window_name() == "custom"
    assert (found.since, found.until) == (NOON + timedelta(minutes=10), NOON + timedelta(minutes=20))


@pytest.mark.parametrize(
    ("parameters", "remark"),
    [
        ({"window": "7m"}, "There is no window '7m'"),
        ({"since": "yesterday"}, "since = 'yesterday' is no time"),
        ({"since": "2026-11-30T13:00:00Z", "until": "2026-11-30T12:00:00Z"}, "ends before it begins"),
        ({"percentile": "12"}, "p12 has no tail"),
    ],
    ids=["unknown window", "no time", "backwards", "no tail"],
)
def test_unreadable_part_is_left_out_and_named(
    url: dict[str, str], parameters: dict[str, str], remark: str
) -> None:
    url |= parameters

    assert (read_scope(EXTENT).since, read_scope(EXTENT).percentile) == (NOON, 0.99)
    assert [remark in said for said in misread()] == [True]


def test_readable_link_is_not_remarked_on(url: dict[str, str]) -> None:
    url |= {"window": "15m", "percentile": "99.9", "service": "ranker"}

    assert misread() == []


@pytest.mark.parametrize(
    ("text", "percentile", "name"),
    [("90", 0.9, "90"), ("p95", 0.95, "95"), ("99.9", 0.999, "99.9"), ("97.5", 0.975, "97.5")],
)
def test_percentile_of_the_link_is_read(url: dict[str, str], text: str, percentile: float, name: str) -> None:
    url["percentile"] = text

    assert read_scope(EXTENT).percentile == percentile
    assert percentile_name() == name
    assert read_scope(EXTENT).link()["percentile"] == text


def test_link_freezes_the_window(url: dict[str, str]) -> None:
    url |= {"window": "15m", "service": "ranker", "sheet": "3"}

    assert read_scope(EXTENT).link() == {
        "service": "ranker",
        "since": "2026-11-30T13:45:00.000001Z",
        "until": "2026-11-30T14:00:00.000001Z",
    }


def test_permalink_keeps_the_filters_of_the_page(url: dict[str, str]) -> None:
    url |= {"window": "15m", "min_ms": "50", "sheet": "3"}

    link = read_scope(EXTENT).permalink()

    assert (link["min_ms"], link["sheet"]) == ("50", "3")
    assert "window" not in link


@given(hs.datetimes(timezones=hs.timezones()))
def test_moment_survives_the_address(when: datetime) -> None:
    assume(1 < when.year < 9999)  # a zone must not carry it out of the calendar

    assert address.moment(address.moment_text(when)) == when.astimezone(UTC)


@given(hs.floats(min_value=1e-6, max_value=1e9), hs.integers(min_value=1, max_value=200))
def test_steps_never_exceed_the_pieces_asked_for(seconds: float, pieces: int) -> None:
    window = timedelta(seconds=seconds)
    step_us = scope(NOON, NOON + window).step_us(pieces)

    assert step_us > 0
    assert window.total_seconds() * 1e6 / step_us <= pieces * (1 + 1e-6)


def test_selection_reaches_the_query_as_a_condition(url: dict[str, str]) -> None:
    url |= {"service": "it's", "where": "batch_size > 4"}

    condition = read_scope(EXTENT).values()["selection"]

    assert "service = 'it''s'" in str(condition)
    assert "batch_size > 4" in str(condition)


@pytest.mark.parametrize(
    ("parameters", "field", "value"),
    [
        ({}, "min_ms", None),
        ({"min_ms": "12.5"}, "min_ms", 12.5),
        ({"min_ms": "fast"}, "min_ms", None),
        ({"min_ms": "-4"}, "min_ms", None),
        ({"min_ms": "inf"}, "min_ms", None),
        ({"status": "error"}, "only_errors", True),
        ({"sheet": "0"}, "sheet", 1),
        ({"sheet": "7"}, "sheet", 7),
        ({"sheet": "\u00b2"}, "sheet", 1),
        ({"sheet": "999999"}, "sheet", listing.SHEETS),
        ({"sheet": "9" * 5000}, "sheet", listing.SHEETS),
    ],
)
def test_filter_that_cannot_be_read_counts_as_not_given(
    url: dict[str, str], parameters: dict[str, str], field: str, value: object
) -> None:
    url |= parameters

    assert getattr(listing.read_wanted(), field) == value


def test_sort_by_an_unknown_column_is_by_duration(url: dict[str, str]) -> None:
    url["sort"] = "duration_ms; drop table requests"

    assert listing.read_wanted().order.column == "duration_ms"


def test_default_filters_stay_out_of_the_address() -> None:
    assert listing.sort_text("duration_ms") is None
    assert listing.order_text("desc") is None
    assert listing.sheet_text(1) is None
    assert listing.number_text(0.0) is None


@pytest.mark.parametrize(
    ("requests", "window"),
    [(0, "all"), (50_000, "all"), (240_000, "1h"), (2_400_000, "15m"), (10_000_000, "5m"), (10**9, "5m")],
)
def test_a_large_store_opens_on_its_newest_requests(requests: int, window: str) -> None:
    stored = Extent(requests, NOON - timedelta(hours=24), NOON)

    assert usual_window(stored) == window


def test_a_link_that_asks_for_all_gets_all(url: dict[str, str]) -> None:
    assert read_scope(EXTENT, "5m").since == EXTENT.last + timedelta(microseconds=1) - timedelta(minutes=5)  # type: ignore[operator]

    url["window"] = "all"

    assert read_scope(EXTENT, "5m").since == EXTENT.first
