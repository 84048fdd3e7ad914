"""How numbers are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tailscope_dashboard import _figures as figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\u2013"),
        (float("nan"), "\u2013"),
        (0.0, "0 ms"),
        (0.4123, "0.412 ms"),
        (4.567, "4.57 ms"),
        (48.31, "48.3 ms"),
        (1812.4, "1,812 ms"),
        (12_400.0, "12.4 s"),
        (-3.0, "\u22123.00 ms"),
        (-0.0003, "0 ms"),
        (0.0003, "0 ms"),
    ],
)
def test_milliseconds_keep_three_digits(value: float | None, text: str) -> None:
    assert figures.milliseconds(value) == text


def test_change_has_its_sign() -> None:
    assert figures.milliseconds(27.1, signed=True) == "+27.1 ms"


def test_change_that_rounds_to_nothing_has_no_minus() -> None:
    assert figures.milliseconds(-0.0001, signed=True) == "0 ms"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (None, 0, "\u2013"),
        (0.0, 0, "0 %"),
        (0.714, 0, "71 %"),
        (0.0117, 2, "1.17 %"),
        (0.0004, 0, "< 1 %"),
        (-0.0004, 0, "> \u22121 %"),
        (-0.005, 0, "> \u22121 %"),
    ],
)
def test_share_that_rounds_to_nothing_is_not_nothing(value: float | None, digits: int, text: str) -> None:
    assert figures.share(value, digits=digits) == text


def test_count_has_groups_of_thousands() -> None:
    assert figures.count(1_204_311) == "1,204,311"


@pytest.mark.parametrize(
    ("requests", "seconds", "text"),
    [
        (600, 60, "10.0 /s"),
        (5, 60, "5.0 /min"),
        (5, 0, "\u2013"),
        (1, 1e-6, "\u2013"),
        (3, 3600, "3.0 /h"),
        (2, 86_400, "2.0 /day"),
        (1, 2_592_000, "0.033 /day"),
    ],
)
def test_rate_takes_the_unit_of_which_there_is_one(requests: int, seconds: float, text: str) -> None:
    assert figures.rate(requests, seconds) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (None, "\u2013"),
        (0, "0 ms"),
        (41, "41 ns"),
        (1000, "1 \u00b5s"),
        (41_300, "41.3 \u00b5s"),
        (-250, "\u2212250 ns"),
        (412_300, "0.412 ms"),
    ],
)
def test_short_time_is_written_in_its_own_unit(nanoseconds: int | None, text: str) -> None:
    assert figures.nanoseconds(nanoseconds) == text


@pytest.mark.parametrize(
    ("status", "text"), [("unset", "ok (unset)"), ("ok", "ok"), ("error", "error"), (None, None)]
)
def test_status_nobody_set_reads_as_ok(status: str | None, text: str | None) -> None:
    assert figures.outcome(status) == text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(250_000, "250 ms"), (30_000_000, "30 s"), (300_000_000, "5 min"), (7_200_000_000, "2 h")],
)
def test_step_is_written_in_its_largest_whole_unit(microseconds: int, text: str) -> None:
    assert figures.step(microseconds) == text


def test_window_within_a_day_names_the_day_once() -> None:
    since = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    text = figures.span_of_time(since, since + timedelta(minutes=30))

    assert text == "2026-11-30 12:00:00 \u2013 12:30:00 UTC"


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (timedelta(seconds=45), "45 s"),
        (timedelta(minutes=30), "30 min"),
        (timedelta(hours=5), "5.0 h"),
        (timedelta(days=3), "3.0 d"),
    ],
)
def test_length_of_a_window(window: timedelta, text: str) -> None:
    assert figures.length(window) == text


def test_interval_names_both_ends() -> None:
    assert figures.interval(-0.2, 29.4) == "\u22120.200 ms to +29.4 ms"


def test_one_row_is_singular() -> None:
    assert (figures.plural(1, "row"), figures.plural(0, "row")) == ("1 row", "0 rows")
