"""Who may open a data directory."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer import Client, Selection, SourceError
from tailscope_collector import Collector, LocalSource, open_data
from tailscope_collector._directory import DataDirectory
from tailscope_collector._store import Store
from tailscope_collector.commands import serve as serve_command
from tailscope_collector.errors import (
    ListenError,
    StoreError,
    StoreHeldError,
    StoreMissingError,
    StoreVersionError,
)
from tests.collector.building import Bench, SpanSpec, body
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from pathlib import Path


def test_a_missing_directory_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match=r"No data directory at .*nowhere\. Start a collector"):
        open_data(tmp_path / "nowhere")

    assert not (tmp_path / "nowhere").exists()
    assert issubclass(StoreError, SourceError)


def test_a_second_collector_is_refused_and_told_who_holds_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Collector(tmp_path / "data") as first:
        code = serve_command.main(["--data", str(tmp_path / "data"), "--grpc-port", "0", "--http-port", "0"])

        said = capsys.readouterr()
        assert code == 1
        assert f"in use by pid {os.getpid()}, {first.url}" in said.err
        assert said.out == ""


def test_a_held_directory_is_asked_over_http_and_a_free_one_is_opened(tmp_path: Path) -> None:
    with Collector(tmp_path / "data") as collector:
        post_protobuf(collector.url, body(SpanSpec(kind=2)))
        with open_data(tmp_path / "data") as held:  # type: ignore[attr-defined]  # both kinds are context managers
            assert isinstance(held, Client)
            over_http = held.sql("select * from requests").rows

    with open_data(tmp_path / "data") as free:  # type: ignore[attr-defined]
        assert isinstance(free, LocalSource)
        assert free.sql("select * from requests").rows == over_http
        assert len(free.traces(Selection(service="svc"))) == 1
        assert free.report().requests == 1
        assert free.trace(f"{1:032X}")["trace_id"] == f"{1:032x}"


def test_a_held_directory_without_an_address_is_said_to_be_held(tmp_path: Path) -> None:
    with (
        open_data(tmp_path / "data", create=True),
        pytest.raises(StoreHeldError, match="is starting or is no collector"),
    ):  # type: ignore[attr-defined]
        open_data(tmp_path / "data")


def test_the_address_is_gone_when_the_collector_is(tmp_path: Path) -> None:
    with Collector(tmp_path / "data") as collector:
        written = json.loads((tmp_path / "data" / "collector.json").read_text())

    assert written == {"pid": os.getpid(), "url": collector.url, "grpc": collector.grpc}
    assert not (tmp_path / "data" / "collector.json").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [('{"storage_version": 99}', "storage version 99"), ("{}", "does not name a storage version")],
)
def test_another_storage_version_is_refused_with_the_path(tmp_path: Path, content: str, said: str) -> None:
    open_data(tmp_path, create=True).close()
    (tmp_path / "storage.json").write_text(content)

    with pytest.raises(StoreVersionError, match=said) as caught:
        open_data(tmp_path)

    assert str(tmp_path) in str(caught.value)


def test_a_database_of_somebody_else_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "active.duckdb").write_bytes(b"something")

    with pytest.raises(StoreVersionError, match="not written by Tailscope"):
        open_data(tmp_path, create=True)


def test_a_port_in_use_is_said_and_the_directory_is_let_go(tmp_path: Path) -> None:
    with Collector(tmp_path / "one") as first:
        for ports in (
            {"http_port": int(first.url.rpartition(":")[2])},
            {"grpc_port": int(first.grpc.rpartition(":")[2])},
        ):
            with pytest.raises(ListenError, match=r"Cannot listen on 127\.0\.0\.1:\d+"):
                Collector(tmp_path / "two", **ports)

    open_data(tmp_path / "two").close()


def test_a_wrong_bound_is_a_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        serve_command.main(["--data", str(tmp_path), "--queue-mb", "0"])

    assert caught.value.code == 2
    assert "error: --queue-mb is 0; it must be between 1 and 16384" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["65536", "-1"])
@pytest.mark.parametrize("flag", ["--grpc-port", "--http-port"])
def test_a_number_that_is_no_port_is_a_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, port: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        serve_command.main(["--data", str(tmp_path), f"{flag}={port}"])

    assert caught.value.code == 2
    assert f"{port} is no port; it must be between 0 and 65535" in capsys.readouterr().err


@pytest.mark.parametrize("comes_back", [False, True])
def test_nothing_is_acknowledged_once_the_directory_is_gone(tmp_path: Path, comes_back: bool) -> None:
    data = tmp_path / "data"
    with Collector(data) as collector:
        assert post_protobuf(collector.url, body(SpanSpec(span=1))).status == 200
        shutil.rmtree(data)
        if comes_back:
            data.mkdir()
            (data / "lock").touch()

        answer = post_protobuf(collector.url, body(SpanSpec(span=2)))

        assert answer.status == 503
        assert b"was deleted or replaced while in use" in answer.body
        assert call(f"{collector.url}/healthz").status == 503


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "collector.tmp").mkdir()

    with pytest.raises(StoreError, match=r"Cannot write .*collector\.json"), Collector(tmp_path):
        pass

    assert not DataDirectory(tmp_path).is_held()


def test_a_stop_that_cannot_checkpoint_is_still_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_store: Store) -> None:
        raise StoreError("No space left on device")

    with Collector(tmp_path) as collector:
        assert post_protobuf(collector.url, body(SpanSpec())).status == 200
        monkeypatch.setattr(Store, "checkpoint", full)

    assert "the log was not moved into the database file" in caplog.text
    with open_data(tmp_path) as again:  # type: ignore[attr-defined]
        assert again.sql("select count(*) from spans").rows == [(1,)]


def test_a_full_disk_puts_the_checkpoint_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bench(tmp_path) as bench:
        bench.ingest(body(SpanSpec()))
        with monkeypatch.context() as full:
            full.setattr("tailscope_collector._store.SPARE_BYTES", 1 << 60)
            with pytest.raises(StoreError, match="Not enough room"):
                bench.store.checkpoint()
        assert bench.store.wal_bytes() > 0

        bench.store.checkpoint()

        assert bench.store.wal_bytes() == 0
