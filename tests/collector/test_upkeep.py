"""When a collector seals and tidies by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tailscope_collector import Collector
from tailscope_collector._sealed._sealing import Sealer
from tailscope_collector._settings import Settings
from tests.collector.building import SpanSpec, body
from tests.collector.serving import post_protobuf
from tests.collector.test_sealing import rich

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

DEADLINE_S = 30.0


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def segments(collector: Collector) -> int:
    return collector.store.segment_count()


def send(collector: Collector, traces: range) -> None:
    assert post_protobuf(collector.url, b"".join(rich(trace) for trace in traces)).status == 200


def test_enough_settled_spans_are_sealed(tmp_path: Path) -> None:
    settings = Settings(seal_spans=1000, seal_quiet_s=0)
    with Collector(tmp_path, settings=settings) as collector:
        send(collector, range(1, 100))
        assert collector.store.segment_count() == 0
        send(collector, range(100, 300))

        assert until(lambda: segments(collector) == 1)
        assert until(lambda: collector.counters.value("spans_sealed_total") == 299 * 6)
        assert collector.store.span_count() == 299 * 6


def test_few_spans_are_sealed_when_they_are_old(tmp_path: Path) -> None:
    with Collector(tmp_path, settings=Settings(seal_s=1, seal_quiet_s=0)) as collector:
        send(collector, range(1, 3))

        assert until(lambda: segments(collector) == 1)


def test_a_trace_that_goes_on_is_not_sealed(tmp_path: Path) -> None:
    with Collector(tmp_path, settings=Settings(seal_s=1, seal_quiet_s=3600)) as collector:
        send(collector, range(1, 3))
        time.sleep(2.5)

        assert segments(collector) == 0


def test_traces_that_go_on_do_not_make_a_segment_of_each_that_ends_beside_them(tmp_path: Path) -> None:
    with Collector(tmp_path, settings=Settings(seal_spans=1000, seal_quiet_s=1)) as collector:
        post_protobuf(collector.url, body(*(SpanSpec(1, span) for span in range(1, 1500))))
        for turn in range(8):
            post_protobuf(collector.url, body(SpanSpec(1, 5000 + turn)))
            send(collector, range(100 + turn, 101 + turn))
            time.sleep(0.5)

        assert segments(collector) == 0


def test_what_an_earlier_process_stored_is_sealed_and_what_is_too_much_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(tmp_path) as collector:
        send(collector, range(1, 300))
    monkeypatch.setattr(Settings, "retain_bytes", 1)
    with Collector(tmp_path, settings=Settings(seal_spans=1000, seal_quiet_s=0)) as collector:
        assert until(lambda: collector.counters.value("segments_dropped_total") == 1)

        assert collector.counters.value("spans_sealed_total") == 299 * 6
        assert collector.store.span_count() == 0


def test_a_failure_is_counted_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tailscope_collector._sealed._upkeep.RETRY_S", 0.1)
    seal = Sealer.seal
    failures = iter(range(2))

    def failing(self: Sealer, **given: int) -> object:
        if next(failures, None) is not None:
            raise OSError("no space left on device")
        return seal(self, **given)

    monkeypatch.setattr(Sealer, "seal", failing)
    with Collector(tmp_path, settings=Settings(seal_spans=1000, seal_quiet_s=0)) as collector:
        send(collector, range(1, 300))

        assert until(lambda: segments(collector) == 1)
        assert collector.counters.value("upkeep_failed_total") == 2
    assert "no space left on device" in caplog.text


def test_a_quiet_moment_moves_the_log_into_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope_collector._sealed._upkeep.IDLE_S", 0.5)
    monkeypatch.setattr("tailscope_collector._sealed._upkeep.TIDY_BYTES", 1)
    with Collector(tmp_path) as collector:
        post_protobuf(collector.url, body(SpanSpec()))

        assert until(lambda: collector.store.wal_bytes() == 0)


def test_a_stop_does_not_wait_for_a_long_seal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailscope_collector._sealed._sealing.ROW_GROUP_SPANS", 6)
    with Collector(tmp_path, settings=Settings(seal_spans=1000, seal_quiet_s=0)) as collector:
        send(collector, range(1, 2000))
        assert until((collector.store.segments.folder / "00000001").exists)
        begun = time.monotonic()
    assert time.monotonic() - begun < 8
    with Collector(tmp_path) as collector:
        assert collector.store.span_count() == 1999 * 6
