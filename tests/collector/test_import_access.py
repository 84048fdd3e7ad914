"""`tailscope import` into a collector that asks for a token and speaks TLS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import tailscope_analyzer as ta
from tailscope_collector import Collector, Security
from tailscope_collector.commands import import_files
from tests.collector.certificates import write_certificates
from tests.collector.test_http_receiver import JSON_SPAN, json_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.collector.certificates import Certificates

INGEST, QUERY = "ingest-0123456789abcdef", "query-0123456789abcdef"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    for name in ("TAILSCOPE_TOKEN", "TAILSCOPE_TOKEN_FILE", "TAILSCOPE_ACCESS_FILE", "TAILSCOPE_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, token in (("ingest", INGEST), ("query", QUERY)):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "traces.json").write_text(json.dumps(json_request(JSON_SPAN)))
    return write_certificates(tmp_path / "certificates")


@pytest.fixture
def guarded(tmp_path: Path, files: Certificates) -> Iterator[Collector]:
    tokens = {f"{side}_token_file": str(tmp_path / side) for side in ("ingest", "query")}
    with Collector(tmp_path / "data", security=Security(tls=files.server, **tokens)) as made:  # type: ignore[arg-type]
        yield made


def stored(collector: Collector, files: Certificates) -> object:
    with ta.connect(collector.url, token=QUERY, ca_file=files.ca) as client:
        return client.sql("select count(*) from spans").rows


def test_a_url_wants_the_ingest_token(guarded: Collector, files: Certificates, tmp_path: Path) -> None:
    argv = [str(tmp_path / "traces.json"), "--url", guarded.url, "--ca-file", files.ca]

    assert import_files.main(argv) == 1
    assert import_files.main([*argv, "--token-file", str(tmp_path / "query")]) == 1
    assert stored(guarded, files) == [(0,)]
    assert import_files.main([*argv, "--token-file", str(tmp_path / "ingest")]) == 0
    assert stored(guarded, files) == [(1,)]


def test_the_owner_of_the_directory_imports_without_one(
    guarded: Collector, files: Certificates, tmp_path: Path
) -> None:
    assert import_files.main([str(tmp_path / "traces.json"), "--data", str(tmp_path / "data")]) == 0
    assert stored(guarded, files) == [(1,)]
