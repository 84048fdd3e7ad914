"""Clients that ask too much, send too little or leave: the others do not notice."""

from __future__ import annotations

import json
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ask_rows, call, post_json, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.collector.serving import ServeProcess

ENDLESS = {"query": "select count(*) from range(1000000000000)"}
QUESTIONS = 60
"""More than the threads that an event loop has for all of its work."""


class RawClient:
    """Connections that are spoken to by hand; all are closed at the end."""

    def __init__(self) -> None:
        self.open: list[socket.socket] = []

    def send(self, url: str, path: str, sent: bytes, *, length: int | None = None) -> socket.socket:
        """Send a request whose head promises `length` bytes; its answer is not read."""
        address = urlsplit(url)
        assert address.hostname is not None
        peer = socket.create_connection((address.hostname, address.port or 0), DEADLINE_S)
        self.open.append(peer)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
            f"Content-Length: {len(sent) if length is None else length}\r\n\r\n"
        )
        peer.sendall(head.encode() + sent)
        return peer

    def close(self) -> None:
        for peer in self.open:
            peer.close()


@pytest.fixture
def raw() -> Iterator[RawClient]:
    client = RawClient()
    yield client
    client.close()


def test_questions_without_end_do_not_hold_exports_up(
    serve: Callable[..., ServeProcess], raw: RawClient
) -> None:
    process = serve("--query-timeout-s", "30")
    for _ in range(QUESTIONS):
        raw.send(process.url, "/api/sql", json.dumps(ENDLESS).encode())
    started = time.monotonic()

    # JSON is unpacked in a thread.
    answer = post_json(f"{process.url}/v1/traces", {"resourceSpans": []})

    assert answer.status == 200
    assert time.monotonic() - started < 10, "an export waited for questions"
    assert process.terminate() == 0
    assert time.monotonic() - started < 20, "the stop waited for questions"


def test_a_client_that_hangs_up_gives_its_turn_back(
    serve: Callable[..., ServeProcess], raw: RawClient
) -> None:
    process = serve("--query-timeout-s", "300")
    for _ in range(QUESTIONS):
        raw.send(process.url, "/api/sql", json.dumps(ENDLESS).encode())
    raw.close()

    assert ask_rows(process.url, "select 1") == [[1]]


def test_too_many_questions_are_told_to_come_again(
    serve: Callable[..., ServeProcess], raw: RawClient
) -> None:
    process = serve("--max-queries", "1", "--query-timeout-s", "1.5")
    for _ in range(4):
        raw.send(process.url, "/api/sql", json.dumps(ENDLESS).encode())

    answer = post_json(f"{process.url}/api/sql", {"query": "select 1"})

    assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
    assert "--max-queries" in answer.json["error"]["message"]


def test_half_a_body_is_no_traceback_and_no_obstacle_to_a_stop(
    serve: Callable[..., ServeProcess], raw: RawClient
) -> None:
    process = serve()
    for _ in range(20):
        raw.send(process.url, "/v1/traces", b"half", length=1000).close()
    for _ in range(20):
        raw.send(process.url, "/v1/traces", b"half", length=1000)
    assert post_protobuf(process.url, body(SpanSpec())).status == 200
    started = time.monotonic()

    assert process.terminate() == 0

    assert time.monotonic() - started < 20
    assert not [line for line in process.said if "Traceback" in line]


def test_idle_connections_do_not_hold_a_stop_up(serve: Callable[..., ServeProcess], raw: RawClient) -> None:
    process = serve()
    for _ in range(100):
        raw.send(process.url, "/healthz", b"")
    assert call(f"{process.url}/healthz").status == 200

    assert process.terminate() == 0
