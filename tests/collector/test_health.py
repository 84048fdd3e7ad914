"""`/readyz` and `/healthz`: whether spans are taken, and why not."""

from __future__ import annotations

import json
import resource
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from tailscope_analyzer import QueryError, connect
from tailscope_analyzer.commands import doctor as doctor_command
from tailscope_collector import Collector, Settings
from tailscope_collector._health import FAILED_S, Reason
from tests.collector.building import SpanSpec, body
from tests.collector.serving import call, post_protobuf


def reasons(collector: Collector) -> tuple[int, list[str]]:
    answer = call(f"{collector.url}/readyz", Accept="application/json")
    assert answer.json["ready"] is (answer.status == 200)
    return answer.status, [reason["code"] for reason in answer.json["reasons"]]


def test_a_collector_that_takes_spans_says_so_in_both_forms(collector: Collector) -> None:
    assert reasons(collector) == (200, [])
    assert call(f"{collector.url}/readyz").body == b"ready\n"


def test_a_collector_that_is_drained_says_no_and_takes_spans_all_the_same(collector: Collector) -> None:
    collector.drain()

    assert reasons(collector) == (503, ["stopping"])
    assert call(f"{collector.url}/readyz").body == b"not ready: stopping: The collector is stopping.\n"
    assert call(f"{collector.url}/healthz").status == 200
    assert post_protobuf(collector.url, body(SpanSpec())).status == 200


def test_a_full_queue_is_a_reason_and_passes(tmp_path: Path) -> None:
    with Collector(tmp_path / "data", settings=Settings(queue_mb=1)) as collector:
        held = threading.Event()
        with collector.intake._change:  # neither thread goes on meanwhile
            collector.intake.submit(bytes(1_000_000), lambda _: held.set())
            found = collector.health.reasons()
        assert [reason.code for reason in found] == ["queue_full"]
        assert "1000000 of 1048576 bytes" in found[0].message
        assert held.wait(30)
        assert reasons(collector) == (200, [])


def test_a_disk_without_room_is_a_reason(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(0))

    assert reasons(collector) == (503, ["disk"])


class _Usage:
    def __init__(self, free: int) -> None:
        self.total = self.used = self.free = free


def test_failing_commits_are_a_reason_until_one_succeeds_or_nothing_was_tried_for_a_while(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(type(collector.store.directory), "check_in_place", _fail)
        assert post_protobuf(collector.url, body(SpanSpec())).status == 503
        assert reasons(collector) == (503, ["commits_fail"])
    assert post_protobuf(collector.url, body(SpanSpec())).status == 200
    assert reasons(collector) == (200, [])

    later = {"commits_failed_total": FAILED_S + 1, "commits_total": FAILED_S + 2}
    monkeypatch.setattr(type(collector.counters), "seconds_since", lambda _, name: later[name])
    assert reasons(collector) == (200, []), "nobody would send, so nothing could ever succeed"


def _fail(*_: Any) -> None:
    raise OSError("no room")


def test_other_parts_may_have_a_reason(collector: Collector) -> None:
    collector.health.checks.append(lambda: Reason("sealing", "Nothing can be sealed."))

    assert reasons(collector) == (503, ["sealing"])


def test_a_directory_that_is_gone_is_told_by_every_page_that_an_operator_asks(tmp_path: Path) -> None:
    with Collector(tmp_path / "data") as collector:
        shutil.rmtree(tmp_path / "data")
        assert post_protobuf(collector.url, body(SpanSpec())).status == 503

        assert reasons(collector) == (503, ["broken"])
        assert call(f"{collector.url}/healthz").status == 503
        assert b"tailscope_collector_ready 0\n" in call(f"{collector.url}/metrics").body
        about = connect(collector.url).about()
        assert about["health"]["reasons"][0]["code"] == "broken"
        assert about["counters"]["commits_failed_total"] == [{"labels": {}, "value": 1}]


def test_a_directory_that_is_gone_is_told_though_nothing_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A supervisor that turns senders away from what is not ready would else wait for good."""
    with Collector(tmp_path / "data") as collector:
        assert call(f"{collector.url}/healthz").status == 200
        shutil.rmtree(tmp_path / "data")

        assert call(f"{collector.url}/healthz").status == 503
        assert reasons(collector) == (503, ["broken"])
        assert doctor_command.main(["--url", collector.url, "--format", "json"]) == 1
    bad = {check["check"]: check["figure"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "its directory is gone" in bad["ready"]
    assert "segments" in bad["answers"]


def test_a_query_that_ends_the_database_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the next commit only, which may be hours away; without DuckDB's stack trace and its paths."""
    monkeypatch.setattr("tailscope_collector._query._queries.check_query", lambda *_: frozenset())
    kept = resource.getrlimit(resource.RLIMIT_AS)
    with Collector(tmp_path / "data") as collector:
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 30), kept[1]))
        try:
            with pytest.raises(QueryError, match="INTERNAL") as caught:
                collector.queries.run("select reservoir_quantile(i, 0.5, 2147483647) from range(3) t(i)")
        finally:
            resource.setrlimit(resource.RLIMIT_AS, kept)

        assert (caught.value.code, caught.value.status) == ("store_error", 503)
        assert "/" not in str(caught.value)
        assert call(f"{collector.url}/healthz").status == 503
        assert reasons(collector) == (503, ["broken"])


def test_info_says_what_an_examination_wants_to_know(collector: Collector) -> None:
    post_protobuf(collector.url, b"\xff")

    about = connect(collector.url).about()
    assert about["health"] == {"ready": True, "reasons": []}
    assert about["queue"] == {"bytes": 0, "capacity_bytes": 64 << 20}
    assert about["disk"]["free_bytes"] > 0
    assert about["uptime_s"] >= 0
    assert about["counters"]["requests_refused_total"] == [
        {"labels": {"reason": "malformed", "signal": "traces", "transport": "http"}, "value": 1}
    ]
