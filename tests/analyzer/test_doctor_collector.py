"""What `tailscope doctor` makes of what a collector says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tailscope_analyzer import _doctor as doctor
from tailscope_analyzer._doctor_collector import TODO, Found, examine_collector
from tailscope_analyzer.commands import doctor as command
from tailscope_collector import Collector
from tailscope_collector._exports import REASONS
from tests.collector.building import SpanSpec, export_request
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from pathlib import Path


def about(counters: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the answer of a collector; a counter is a number, or numbers by reason."""
    told: dict[str, list[dict[str, Any]]] = {}
    for name, counted in (counters or {}).items():
        by_reason = counted if isinstance(counted, dict) else {"": counted}
        told[name] = [
            {"labels": {"reason": reason} if reason else {}, "value": value}
            for reason, value in by_reason.items()
        ]
    return {
        "health": {"ready": True, "reasons": []},
        "uptime_s": 7200,
        "queue": {"bytes": 0, "capacity_bytes": 100},
        "disk": {"free_bytes": 50 << 30},
        "counters": told,
    } | changes


def found(told: dict[str, Any]) -> dict[str, Found]:
    return {line.check: line for line in examine_collector(told)}


def verdicts(told: dict[str, Any]) -> dict[str, str]:
    return {line.check: line.verdict for line in examine_collector(told) if line.verdict != "ok"}


def test_a_collector_that_is_well_says_so_in_few_lines() -> None:
    well = about({"requests_total": 50, "spans_received_total": 1000, "commits_total": 20})

    lines = list(examine_collector(well))
    assert {line.verdict for line in lines} == {"ok"}
    assert [line.check for line in lines] == ["ready", "duplicates", "late", "commits", "queue", "disk"]
    assert lines[0].figure == "takes spans, up 2 h"


def test_what_an_older_collector_does_not_say_is_passed_over() -> None:
    assert list(examine_collector({"version": "0.1.0", "spans": 5})) == []


@pytest.mark.parametrize(("code", "verdict"), [("broken", "bad"), ("disk", "bad"), ("queue_full", "warn")])
def test_why_it_takes_no_spans_is_told(code: str, verdict: str) -> None:
    line = found(about(health={"ready": False, "reasons": [{"code": code, "message": "So it is."}]}))["ready"]

    assert (line.verdict, line.figure) == (verdict, "So it is")
    assert line.todo


@pytest.mark.parametrize(
    ("reason", "count", "verdict"),
    [
        ("malformed", 1, "warn"),
        ("malformed", 20, "bad"),
        ("overloaded", 500, "warn"),
        ("unserved", 900, "warn"),
    ],
)
def test_refusals_are_bad_where_something_is_lost_for_good(reason: str, count: int, verdict: str) -> None:
    line = found(about({"requests_total": 1000, "requests_refused_total": {reason: count}}))["refused"]

    assert (line.verdict, line.todo) == (verdict, TODO[reason])
    assert line.figure == f"{count:,} export requests refused since its start: {reason}"


def test_every_reason_of_the_collector_has_advice() -> None:
    assert set(REASONS.values()) == set(TODO)


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ({"spans_rejected_total": {"bad id": 1}}, {"rejected": "warn"}),
        ({"spans_rejected_total": {"bad id": 11}}, {"rejected": "bad"}),
        ({"spans_duplicate_total": 10}, {}),
        ({"spans_duplicate_total": 11}, {"duplicates": "warn"}),
        ({"spans_late_total": {"settled": 900, "sealed": 10}}, {}),
        ({"spans_late_total": {"sealed": 11}}, {"late": "warn"}),
        ({"spans_repaired_total": {"kind is no known number": 1}}, {"repaired": "warn"}),
        ({"spans_repaired_total": {"parent span id is all zero: taken as none": 900}}, {}),
        ({"commits_failed_total": 1}, {"commits": "warn"}),
        ({"upkeep_failed_total": 1}, {"upkeep": "warn"}),
        (
            {"metric_points_received_total": 10, "metric_points_rejected_total": {"no time": 1}},
            {"rejected": "bad"},
        ),
        ({"requests_denied_total": {"token": 1}}, {"refused": "warn"}),
    ],
)
def test_each_count_has_its_limit(counters: dict[str, Any], expected: dict[str, str]) -> None:
    assert verdicts(about({"spans_received_total": 1000, **counters})) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"queue": {"bytes": 51, "capacity_bytes": 100}}, {"queue": "warn"}),
        ({"disk": {"free_bytes": 1 << 30}}, {"disk": "warn"}),
        ({"disk": {"free_bytes": 1 << 20}}, {"disk": "bad"}),
        ({"disk": {"free_bytes": None}}, {}),
    ],
)
def test_queue_and_disk_have_their_limits(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert verdicts(about(**changes)) == expected


@pytest.mark.parametrize("way", ["url", "data"])
def test_the_command_tells_what_only_the_collector_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    request = export_request(SpanSpec(), SpanSpec(trace=2, kind=99))
    with Collector(tmp_path / "data") as collector:
        post_protobuf(collector.url, request.SerializeToString())
        for _ in range(3):
            post_protobuf(collector.url, b"\xff")
        call(f"{collector.url}/v1/logs", b"{}", Content_Type="application/json")
        where = collector.url if way == "url" else str(tmp_path / "data")

        assert command.main([f"--{way}", where]) == 1

    out = " ".join(capsys.readouterr().out.split())
    assert "bad refused collector 3 export requests refused since its start: malformed" in out
    assert "warn refused collector 1 export requests refused since its start: unserved" in out
    assert "warn repaired collector 1 values repaired since its start: kind is no known number" in out
    assert "ok ready collector takes spans, up" in out


def test_a_collector_that_refused_everything_says_so_where_nothing_has_arrived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Collector(tmp_path / "data") as collector:
        post_protobuf(collector.url, b"\xff")
        assert command.main(["--url", collector.url]) == 1

    out = capsys.readouterr().out
    assert "no span has ever arrived" in out
    assert "refused since its start: malformed" in out


def test_a_store_without_a_collector_says_nothing_of_one() -> None:
    assert doctor.examine(
        lambda query: [] if "group by" in query else [{"newest": None}],
        now=None,  # type: ignore[arg-type]  # nothing is dated where nothing is stored
        since=None,
        until=None,
    ).checks == (doctor.nothing([{"newest": None}], None),)
