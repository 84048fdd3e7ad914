"""What is over the bounds goes, at once and for good; what a kept report names stays."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_analyzer import NotFoundError, QueryError, Selection, connect
from tailscope_analyzer.commands import report
from tailscope_collector._findings import Findings
from tailscope_collector._query._questions import Questions
from tailscope_collector._sealed import _retention
from tailscope_collector._sealed._retention import DAY_S, Retention
from tests.collector.building import MS, SpanSpec, body
from tests.collector.serving import call, post_protobuf
from tests.collector.test_sealing import Sealable, rich

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope_collector import Collector


class Kept(Sealable):
    """A store with retention whose clock is set by hand."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.now_unix_s = 0.0
        self.findings = Findings(self.store, Questions(self.store, self.source._queries))

    def retention(self, *, days: float = 0, size_bytes: int = 0) -> Retention:
        return Retention(
            self.store, self.settler, days=days, size_bytes=size_bytes, now_unix_s=lambda: self.now_unix_s
        )

    def segment_of(self, *traces: int) -> None:
        self.ingest(*(rich(trace) for trace in traces))
        self.seal()

    def set_sealed(self, segment: int, unix_s: float) -> None:
        with self.store.cursor() as cursor:
            cursor.execute(f"update segment_rows set sealed_unix_s = {int(unix_s)} where segment = {segment}")  # noqa: S608

    def traces(self) -> list[int]:
        rows = self.rows("select distinct trace_id from spans order by 1")
        return [int(trace, 16) for (trace,) in rows]

    def folders(self) -> list[str]:
        return sorted(path.name for path in self.store.segments.folder.iterdir())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Kept]:
    with Kept(tmp_path / "data") as made:
        yield made


def test_segments_over_age_are_deleted_with_all_that_they_hold(store: Kept) -> None:
    for trace in (1, 2, 3):
        store.segment_of(trace)
    for segment, days in ((1, 0), (2, 5), (3, 9)):
        store.set_sealed(segment, days * DAY_S)
    store.now_unix_s = 10 * DAY_S

    dropped = store.retention(days=6).apply()

    assert dropped is not None
    assert dropped.segments == 1
    assert store.traces() == [2, 3]
    assert store.folders() == ["00000002", "00000003", "empty"]
    assert store.rows("select count(distinct trace_id) from requests") == [(2,)]
    assert store.rows("select count(distinct trace_id) from stages") == [(2,)]
    assert store.rows("select count(*) from sealed_traces") == [(2,)]
    assert store.retention(days=6).apply() is None


def test_the_oldest_segments_go_until_the_rest_fits(store: Kept) -> None:
    for trace in (1, 2, 3):
        store.segment_of(trace)
        store.set_sealed(trace, trace)
    size = store.store.segments_bytes()

    assert store.retention(size_bytes=size).apply() is None
    assert store.retention(size_bytes=size - 1).apply() is not None

    assert store.traces() == [2, 3]
    assert store.folders() == ["00000002", "00000003", "empty"]


def test_no_bound_keeps_all(store: Kept) -> None:
    store.segment_of(1)
    store.now_unix_s = 1e12

    assert store.retention().apply() is None


def test_a_reader_that_began_before_reads_to_its_end_and_the_files_go_then(store: Kept) -> None:
    store.segment_of(1, 2)
    store.now_unix_s = 1e12
    segments = store.store.segments
    with store.store.cursor() as cursor:
        with segments.reading(cursor):
            store.retention(days=1).apply()
            assert store.folders() == ["00000001", "empty"]
            assert cursor.execute("select count(*) from spans").fetchall() == [(12,)]
        assert store.folders() == ["empty"]
    assert store.traces() == []


def test_a_number_that_is_still_read_is_not_given_to_another_segment(store: Kept) -> None:
    store.segment_of(1, 2)
    store.now_unix_s = 1e12
    with store.store.cursor() as cursor:
        with store.store.segments.reading(cursor):
            store.retention(days=1).apply()
            store.segment_of(3)
            assert cursor.execute("select count(*) from spans").fetchall() == [(12,)]
        assert store.folders() == ["00000002", "empty"]
    assert store.traces() == [3]


def test_what_is_sealed_while_the_clock_is_wrong_does_not_look_old(
    store: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = Retention(store.store, store.settler, days=1, size_bytes=0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 400 * DAY_S)
    store.segment_of(1)

    assert retention.apply() is None


def test_a_late_span_while_kept_traces_are_copied_makes_no_second_request(
    store: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.segment_of(1)
    store.findings.keep(Selection(), percentile=0.99, name="kept")
    store.now_unix_s = 1e12
    copy = _retention._copy

    def late(*given: Any) -> Any:
        counts = copy(*given)
        store.ingest(body(SpanSpec(1, 77, parent=1, duration_ns=MS)))
        assert store.rows("select span_count from requests") == [(7,)]
        return counts

    monkeypatch.setattr(_retention, "_copy", late)
    store.retention(days=1).apply()

    assert store.rows("select span_count from requests") == [(7,)]
    assert store.rows("select count(*) from spans") == [(7,)]


def test_a_report_that_is_kept_while_its_segment_goes_keeps_its_traces(
    store: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.segment_of(1)
    store.now_unix_s = 1e12
    look = _retention._kept_traces
    looks: list[int] = []

    def kept(*given: Any) -> Any:
        traces = look(*given)
        if not looks:
            store.findings.keep(Selection(), percentile=0.99, name="just now")
        looks.append(traces.num_rows)
        return traces

    monkeypatch.setattr(_retention, "_kept_traces", kept)
    store.retention(days=1).apply()

    assert store.traces() == [1]


def test_traces_of_a_kept_report_outlive_the_others_until_it_is_forgotten(store: Kept) -> None:
    for trace in range(1, 4):
        store.ingest(body(SpanSpec(trace, 1, kind=2, name="op", duration_ns=trace * MS)))
    store.ingest(body(SpanSpec(9, 1, kind=2, name="other", duration_ns=MS)))
    store.seal()
    finding, made = store.findings.keep(Selection(operation="op"), percentile=0.99, name="monday")
    named = {slow.trace_id for slow in made.slowest}
    assert named == {f"{trace:032x}" for trace in (1, 2, 3)}
    before = store.source.trace(f"{3:032x}")
    store.now_unix_s = 1e12

    for _ in range(2):  # a second pass finds nothing to do
        store.retention(days=1).apply()
        assert store.traces() == [1, 2, 3]
        assert store.rows("select count(*), sum(duration_ms) from requests") == [(3, 6.0)]
        assert store.rows("select sum(self_ms) from stages") == [(6.0,)]
        assert store.source.trace(f"{3:032x}") == before
    assert [kept["name"] for kept in store.findings.listed()] == ["monday"]
    assert store.findings.report(finding) == made.to_json()

    store.findings.forget(finding)
    store.retention(days=1).apply()

    assert store.traces() == []
    assert store.folders() == ["empty"]
    with pytest.raises(NotFoundError):
        store.findings.report(finding)


def test_a_kept_trace_that_was_reopened_has_one_request(store: Kept) -> None:
    store.ingest(body(SpanSpec(1, 2, parent=1, name="inference", duration_ns=MS)))
    store.seal()
    store.ingest(body(SpanSpec(1, 1, kind=2, name="op")))
    store.seal()
    store.findings.keep(Selection(), percentile=0.99, name="late")
    store.now_unix_s = 1e12

    store.retention(days=1).apply()

    assert store.rows("select span_count, complete from requests") == [(2, True)]
    assert store.rows("select count(*) from spans") == [(2,)]
    store.ingest(body(SpanSpec(1, 3, parent=1, duration_ns=MS)))
    assert store.rows("select span_count, complete from requests") == [(3, True)]


def test_a_failure_changes_nothing(store: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    store.segment_of(1)
    store.findings.keep(Selection(), percentile=0.99, name="kept")
    before: list[Any] = store.everything()
    store.now_unix_s = 1e12

    def fail() -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(store.settler, "standing_still", fail)
    with pytest.raises(OSError, match="no space"):
        store.retention(days=1).apply()

    assert store.everything() == before
    assert store.folders() == ["00000001", "empty"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 201])
def test_a_name_that_says_nothing_is_refused(store: Kept, name: str) -> None:
    store.segment_of(1)

    with pytest.raises(QueryError, match="characters"):
        store.findings.keep(Selection(), percentile=0.99, name=name)


def test_a_report_of_nothing_is_not_kept(store: Kept) -> None:
    with pytest.raises(QueryError, match="nothing to keep"):
        store.findings.keep(Selection(), percentile=0.99, name="empty")


def test_a_report_is_kept_and_let_go_from_the_command_line(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    post_protobuf(collector.url, body(SpanSpec(1, 1, kind=2, name="op")))

    assert report.main(["--url", collector.url, "--keep", "monday", "--format", "json"]) == 0

    said = capsys.readouterr()
    kept = json.loads(call(f"{collector.url}/api/findings").body)["findings"]
    assert [(found["name"], found["traces"]) for found in kept] == [("monday", 1)]
    finding = kept[0]["finding_id"]
    assert f"Kept as {finding}" in said.err
    assert json.loads(call(f"{collector.url}/api/findings/{finding}").body) == json.loads(said.out)
    with connect(collector.url) as client:
        assert client.sql("select name, traces from findings").rows == [("monday", [f"{1:032x}"])]
    assert report.main(["--url", collector.url, "--forget", finding]) == 0
    assert report.main(["--url", collector.url, "--forget", finding]) == 1
    for option in ("--keep", "--forget"):
        assert report.main(["--url", collector.url, option, ""]) == 2
    assert json.loads(call(f"{collector.url}/api/findings").body) == {"findings": []}
