"""A collector that asks for a token or speaks TLS, seen from the dashboard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer import QueryError, connect
from tailscope_collector import Collector, Security
from tailscope_dashboard._child import answers, served_at
from tailscope_dashboard.command import source_of
from tests.collector.certificates import write_certificates

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "query-0123456789abcdef"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TAILSCOPE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return str(path)


def asked(url: str) -> object:
    """Ask as a page does: with nothing but an address and the environment."""
    with connect(url) as source:
        return source.sql("select 1").rows


def test_a_directory_is_shown_without_a_token_and_over_tls(tmp_path: Path, token_file: str) -> None:
    certificates = write_certificates(tmp_path / "certificates")
    guarded = Security(query_token_file=token_file, tls=certificates.server)
    with Collector(tmp_path / "data", security=guarded) as collector:
        assert served_at(tmp_path / "data") == collector.url
        with source_of(None, str(tmp_path / "data")) as url:
            assert url == collector.url
            assert answers(url)
            assert asked(url) == [(1,)]
        assert "TAILSCOPE_ACCESS_FILE" not in os.environ
        assert not answers(url)


def test_an_address_is_shown_with_the_token_of_the_environment(
    tmp_path: Path, token_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(tmp_path / "data", security=Security(query_token_file=token_file)) as collector:
        with pytest.raises(QueryError, match="TAILSCOPE_TOKEN_FILE"):
            asked(collector.url)
        monkeypatch.setenv("TAILSCOPE_TOKEN_FILE", token_file)
        with source_of(collector.url, None) as url:
            assert asked(url) == [(1,)]
