"""Where a client's token and certificates come from."""

from __future__ import annotations

import http.server
import json
import threading
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer import InputError, connect
from tailscope_analyzer._credentials import Credentials, credentials, for_owner, owner_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Return a file as a collector leaves it."""
    path = tmp_path / "collector.access"
    path.write_text(json.dumps({"query": "left-q", "ingest": "left-i", "certificate": "PEM"}))
    return path


def test_what_is_given_wins_over_the_directory_and_that_over_the_environment(left: Path) -> None:
    env = {"TAILSCOPE_TOKEN": "env"}

    assert credentials(token="mine", environment=env).token == "mine"
    assert credentials(environment=env).token == "env"
    env["TAILSCOPE_ACCESS_FILE"] = str(left)
    assert credentials(environment=env).token == "left-q"
    assert credentials(side="ingest", environment=env).token == "left-i"
    assert credentials(token="mine", environment=env).token == "mine"
    assert credentials(environment={}).token is None


def test_a_token_file_gives_its_first_token(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("# the new one\n\n  first-token  \nsecond-token\n")

    assert credentials(token_file=str(path), environment={}).token == "first-token"
    assert credentials(environment={"TAILSCOPE_TOKEN_FILE": str(path)}).token == "first-token"


@pytest.mark.parametrize("content", ["", "# nothing\n", "\xff"])
def test_a_file_without_a_token_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))

    with pytest.raises(InputError, match=r"token file .*file"):
        credentials(token_file=str(path), environment={})
    with pytest.raises(InputError, match="No such file"):
        credentials(token_file=str(tmp_path / "nothing"), environment={})


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "tök"])
def test_a_token_that_no_header_can_carry_is_not_shown(token: str) -> None:
    with pytest.raises(InputError) as caught:
        credentials(token=token, environment={})

    assert token not in str(caught.value)


def test_a_token_is_in_no_repr(left: Path) -> None:
    assert "left-q" not in repr(owner_credentials(left.parent))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"query": 5, "certificate": null}'])
def test_a_broken_file_in_the_directory_is_as_none(left: Path, content: str) -> None:
    left.write_text(content)

    assert owner_credentials(left.parent) == Credentials()
    assert for_owner(left.parent).pinned is None


def test_wrong_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    with pytest.raises(InputError, match=r"ca\.pem"):
        connect("https://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem"))
    with pytest.raises(InputError, match=r"none\.pem.*--client-key"):
        connect("https://127.0.0.1:1", client_cert=str(tmp_path / "none.pem"))


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """Sends every question to another place, and notes what it was shown there."""

    shown: list[str | None]

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/other")
        else:
            self.shown.append(self.headers.get("Authorization"))
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, list[str | None]]]:
    shown: list[str | None] = []
    handler = type("Handler", (Elsewhere,), {"shown": shown})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", shown
        server.shutdown()
        thread.join()


def test_a_redirect_does_not_carry_the_token_away(elsewhere: tuple[str, list[str | None]]) -> None:
    url, shown = elsewhere
    with connect(url, token="secret") as client:
        client.answers()

    assert shown == [None]
