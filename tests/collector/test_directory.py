"""Who may open a data directory."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer import Client, Selection, SourceError
from tailscope_collector import Collector, LocalSource, open_data
from tailscope_collector.commands import serve as serve_command
from tailscope_collector.errors import (
    ListenError,
    StoreError,
    StoreHeldError,
    StoreMissingError,
    StoreVersionError,
)
from tests.collector.building import SpanSpec, body
from tests.collector.serving import post_protobuf

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
    assert "queue_mb is 0; it must be between 1 and 16384" in capsys.readouterr().err
