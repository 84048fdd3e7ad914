"""Clients: connecting, TLS and waiting are told apart, beneath the span of the call."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope import integrations

if TYPE_CHECKING:
    from pathlib import Path

Spans = Callable[[], list[Any]]

httpx = pytest.importorskip("httpx")


@pytest.fixture(autouse=True)
def switched_on(recorded: Spans) -> Iterator[None]:
    assert recorded() == []
    integrations.instrument(only=["httpx", "httpx2", "urllib3", "aiohttp"])
    yield
    integrations.uninstrument()


class Slow(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(0.05)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def served(context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a server that thinks for 50 ms."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        scheme = "http" if context is None else "https"
        yield f"{scheme}://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextmanager
def called() -> Iterator[None]:
    """Be inside the span of a client's call, as OpenTelemetry's packages make it."""
    with tailscope.request("predict"), tailscope.dependency("GET", peer="users"):
        yield


def names(spans: list[Any]) -> list[str]:
    """Return the names of the spans in order of their start."""
    return [span.name for span in sorted(spans, key=lambda span: span.start)]


def assert_told(recorded: Spans, steps: list[str]) -> None:
    """Check one call with these steps beneath it and 50 ms of waiting."""
    spans = recorded()
    (call,) = [span for span in spans if span.kind == "client"]
    inside = [span for span in spans if span.parent_id == call.span_id]
    assert names(inside) == steps
    assert 45 < call.attributes["http.client.wait_ms"] <= call.duration_ms
    connect_ms = sum(span.duration_ms for span in inside)
    if steps:
        assert call.attributes["http.client.connect_ms"] == pytest.approx(connect_ms, abs=0.01)
    else:
        assert "http.client.connect_ms" not in call.attributes
    assert tailscope.stats().errors == {}


def test_httpx_connects_once_and_waits_each_time(recorded: Spans) -> None:
    with served() as url, httpx.Client() as client:
        with called():
            assert client.get(url).text == "ok"
        with called():
            client.get(url)

    first, second = sorted((s for s in recorded() if s.kind == "client"), key=lambda span: span.start)
    (connect,) = [span for span in recorded() if span.name == "network.connect"]
    assert connect.parent_id == first.span_id
    assert connect.attributes["tailscope.stage"] == "network.connect"
    assert "http.client.connect_ms" not in second.attributes
    assert second.attributes["http.client.wait_ms"] > 45


def test_httpx_over_tls(recorded: Spans, certificate: Path) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    client_side = ssl.create_default_context(cafile=certificate / "cert.pem")
    with served(server_side) as url, called():
        assert httpx.get(url, verify=client_side).text == "ok"

    assert_told(recorded, ["network.connect", "tls.connect"])


def test_httpx_async(recorded: Spans) -> None:
    async def run(url: str) -> None:
        async with httpx.AsyncClient() as client:
            with called():
                assert (await client.get(url)).text == "ok"

    with served() as url:
        asyncio.run(run(url))

    assert_told(recorded, ["network.connect"])


def test_waiting_for_a_free_connection_is_told(recorded: Spans) -> None:
    async def run(url: str) -> None:
        async def ask() -> None:
            with called():
                await client.get(url)

        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1)) as client:
            await asyncio.gather(ask(), ask())

    with served() as url:
        asyncio.run(run(url))

    waits = [s.attributes.get("http.client.pool_wait_ms", 0) for s in recorded() if s.kind == "client"]
    assert [wait > 40 for wait in sorted(waits)] == [False, True]


def test_a_trace_extension_of_the_callers_own_is_still_called(recorded: Spans) -> None:
    heard: list[str] = []

    def trace(event: str, _info: Any) -> None:
        heard.append(event)

    with served() as url, called(), httpx.Client() as client:
        client.send(client.build_request("GET", url, extensions={"trace": trace}))

    assert "connection.connect_tcp.started" in heard
    assert_told(recorded, ["network.connect"])


def test_a_connection_that_is_refused_is_a_failed_step(recorded: Spans) -> None:
    with pytest.raises(httpx.ConnectError), called():
        httpx.get("http://127.0.0.1:9")

    (connect,) = [span for span in recorded() if span.name == "network.connect"]
    assert (connect.status[0], connect.attributes["error.type"]) == (2, "httpcore.ConnectError")


def test_outside_of_a_client_span_only_the_steps_are_recorded(recorded: Spans) -> None:
    with served() as url:
        httpx.get(url)
        with tailscope.request("predict"):
            httpx.get(url)

    root, connect = sorted(recorded(), key=lambda span: span.start)
    assert (root.name, connect.name, connect.parent_id) == ("predict", "network.connect", root.span_id)
    assert "http.client.wait_ms" not in root.attributes


def test_the_next_generation_of_httpx(recorded: Spans) -> None:
    httpx2 = pytest.importorskip("httpx2")
    with served() as url, called():
        assert httpx2.get(url).text == "ok"

    assert_told(recorded, ["network.connect"])


def test_requests_over_tls(recorded: Spans, certificate: Path) -> None:
    requests = pytest.importorskip("requests")
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with served(server_side) as url, called():
        assert requests.get(url, verify=str(certificate / "cert.pem"), timeout=10).text == "ok"

    assert_told(recorded, ["network.connect", "tls.connect"])


def test_requests_on_a_connection_that_is_kept(recorded: Spans) -> None:
    requests = pytest.importorskip("requests")
    with served() as url, requests.Session() as session:
        session.get(url, timeout=10)
        with called():
            session.get(url, timeout=10)

    assert_told(recorded, [])


def test_aiohttp(recorded: Spans) -> None:
    aiohttp = pytest.importorskip("aiohttp")

    async def run(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            with called():
                async with session.get(url) as response:
                    assert await response.text() == "ok"

    with served() as url:
        asyncio.run(run(url))

    assert_told(recorded, ["network.connect"])
