"""The checks of `tailscope doctor`, each against rows as the store answers them, and its limits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tailscope_analyzer import _doctor as doctor
from tailscope_analyzer._doctor import Check, Examination

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def service_row(**changes: Any) -> dict[str, Any]:
    return {
        "service": "ranker",
        "spans": 1000,
        "instances": 2,
        "last_seen": NOW - timedelta(seconds=3),
        "spans_per_s": 10.0,
        "backwards": 0,
        "cut": 0,
    } | changes


def verdicts(checks: Any) -> list[tuple[str, str, str]]:
    return [(check.check, check.subject, check.verdict) for check in checks]


def test_what_arrives_is_told_with_its_rate_and_when_it_was_last_seen() -> None:
    (check,) = doctor.arrivals([service_row()], NOW)

    assert check == Check(
        "arrival", "ranker", "ok", "1,000 spans, 10.0/s, 2 instances, last seen 3 s ago", 10.0, ""
    )


def test_a_service_that_went_silent_while_others_go_on_is_a_warning() -> None:
    late = service_row(service="auth", last_seen=NOW - timedelta(minutes=6), instances=1)

    assert verdicts(doctor.arrivals([service_row(), late], NOW)) == [
        ("arrival", "ranker", "ok"),
        ("arrival", "auth", "warn"),
    ]
    assert verdicts(doctor.arrivals([late], NOW)) == [("arrival", "auth", "ok")], "nobody else goes on"


def test_a_collector_to_which_nothing_comes_any_more_is_a_warning() -> None:
    late = [service_row(last_seen=NOW - timedelta(minutes=minutes)) for minutes in (90, 6)]

    (check,) = doctor.silence(late, NOW)
    assert (check.check, check.verdict, check.value) == ("arrival", "warn", 360)
    assert check.figure == "the newest span of all services came 6 min ago"
    assert list(doctor.silence([*late, service_row()], NOW)) == []


def test_spans_without_a_service_spans_that_end_early_and_limits_are_told() -> None:
    row = service_row(service="unknown_service", backwards=2, cut=7)

    found = list(doctor.arrivals([row], NOW))
    assert verdicts(found)[1:] == [
        ("name", "unknown_service", "warn"),
        ("duration", "unknown_service", "bad"),
        ("limits", "unknown_service", "warn"),
    ]
    assert verdicts(doctor.oddities(service_row(backwards=1))) == [("duration", "ranker", "warn")]


@pytest.mark.parametrize(
    ("staged", "complete", "expected"),
    [
        (1000, 1000, ["ok", "ok"]),
        (950, 990, ["ok", "ok"]),
        (949, 989, ["warn", "warn"]),
        (1, 949, ["warn", "bad"]),
        (0, 0, ["warn", "bad"]),
    ],
)
def test_requests_without_stages_and_incomplete_ones_have_limits(
    staged: int, complete: int, expected: list[str]
) -> None:
    row = {"service": "ranker", "requests": 1000, "staged": staged, "complete": complete}
    found = list(doctor.stages([{**row, "bare_operation": "GET /health"}]))

    assert [check.check for check in found] == ["stages", "complete"]
    assert [check.verdict for check in found] == expected
    assert ("GET /health" in found[0].todo) == (expected[0] != "ok")


@pytest.mark.parametrize(("untraced", "verdict"), [(200, "ok"), (201, "warn"), (999, "warn")])
def test_time_in_no_stage_is_graded_and_names_the_operation(untraced: int, verdict: str) -> None:
    row = {"service": "ranker", "total_ms": 1000, "untraced_ms": untraced, "staged_ms": 1000 - untraced}
    (check,) = doctor.coverage([{**row, "largest_operation": "POST /predict"}])

    assert (check.verdict, check.value) == (verdict, untraced / 1000)
    assert ("POST /predict" in check.todo) == (verdict != "ok")


def test_a_service_without_any_stage_is_told_once() -> None:
    row = {"service": "x", "total_ms": 10, "untraced_ms": 10, "staged_ms": 0, "largest_operation": "GET"}
    assert list(doctor.coverage([row])) == []


def test_orphans_beyond_one_in_a_thousand_are_a_warning() -> None:
    few, many = ({"service": "x", "spans": 10_000, "orphans": n} for n in (10, 11))
    assert [check.verdict for check in doctor.orphans([few, many])] == ["ok", "warn"]


def test_dropped_spans_count_against_those_that_arrived() -> None:
    rows = [
        {"service": "a", "spans": 9900, "dropped_spans": 0, "dropped_requests": 0},
        {"service": "b", "spans": 9900, "dropped_spans": 99, "dropped_requests": 12},
        {"service": "c", "spans": 9900, "dropped_spans": 101, "dropped_requests": 12},
        {"service": "d", "spans": 9900, "dropped_spans": 0, "dropped_requests": 1},
    ]
    found = list(doctor.dropped(rows))

    assert [check.verdict for check in found] == ["ok", "warn", "bad", "warn"]
    assert found[1].figure == "99 spans and 12 requests dropped (0.99%)"


@pytest.mark.parametrize(
    ("early", "offset_ms", "verdict"),
    [(0, -50.0, "ok"), (1, -0.9, "ok"), (50, -3.0, "warn"), (51, 3.0, "bad"), (1000, -0.5, "ok")],
)
def test_clocks_are_off_where_callees_start_early_by_more_than_a_millisecond(
    early: int, offset_ms: float, verdict: str
) -> None:
    row = {"caller": "a", "callee": "b", "calls": 1000, "early": early, "offset_ms": offset_ms}
    (check,) = doctor.clocks([row])
    assert (check.subject, check.verdict) == ("a > b", verdict)


def test_replicas_that_cannot_be_told_apart_are_told() -> None:
    rows: list[dict[str, Any]] = [
        {"service": "a", "instance": None, "spans": 5, "processes": 1, "overlapping": False},
        {"service": "a", "instance": "one", "spans": 9, "processes": 2, "overlapping": True},
        {"service": "a", "instance": "restarted", "spans": 9, "processes": 2, "overlapping": False},
    ]
    assert verdicts(doctor.instances(rows)) == [("instance", "a", "warn"), ("instance", "a", "bad")]


def test_the_worst_verdict_is_the_whole_examinations() -> None:
    checks = [Check("arrival", "a", verdict, "") for verdict in ("ok", "bad", "warn")]

    assert Examination((), None, None).verdict == "ok"
    assert Examination(tuple(checks), None, None).verdict == "bad"
    assert Examination((checks[0], checks[2]), None, None).verdict == "warn"


def test_an_empty_store_and_an_empty_window_say_different_things() -> None:
    never = doctor.nothing([{"newest": None}], NOW)
    quiet = doctor.nothing([{"newest": NOW - timedelta(days=2)}], NOW)

    assert never.figure == "no span has ever arrived"
    assert quiet.figure == "no span since 2026-01-01 12:00 UTC; the newest is of 2025-12-30 12:00:00 UTC"
    assert never.verdict == quiet.verdict == "bad"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1.0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago"), (200_000, "2 d ago")],
)
def test_how_long_ago_is_in_the_largest_unit(seconds: float, text: str) -> None:
    assert doctor.ago(seconds) == text
