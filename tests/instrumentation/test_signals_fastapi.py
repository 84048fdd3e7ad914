"""The signals of requests in a real FastAPI service under uvicorn, whose server spans are FastAPI's own."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from anyio import to_thread
from fastapi import FastAPI

from tests.instrumentation.signals_process import signals_of
from tests.instrumentation.uvicorn_thread import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.instrumentation.receiver import Receiver, Seen

WORKERS = 2


def service() -> FastAPI:
    """Return a service with an endpoint for each way to be slow."""
    app = FastAPI()

    @app.get("/limit")
    async def limit() -> None:
        to_thread.current_default_thread_limiter().total_tokens = WORKERS

    @app.get("/sync")
    def in_a_thread() -> None:
        time.sleep(0.3)

    @app.get("/blocks")
    async def blocks() -> None:
        await asyncio.sleep(0.05)
        time.sleep(0.3)

    @app.get("/waits")
    async def waits() -> None:
        await asyncio.sleep(0.15)

    return app


@pytest.fixture
def url(receiver: Receiver) -> Iterator[str]:
    """Run the service."""
    with signals_of(receiver.endpoint), served(service()) as running:
        yield running


def get(url: str) -> int:
    """Ask the service."""
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310 - our own loopback server
        return int(answer.status)


def server_spans(receiver: Receiver, name: str, count: int) -> list[Seen]:
    """Return the server spans of one endpoint; they end after the client has its answer."""

    def of_endpoint(spans: list[Seen]) -> list[Seen]:
        return [span for span in spans if span.kind == "server" and span.name == name]

    return of_endpoint(receiver.wait_for(lambda spans: len(of_endpoint(spans)) >= count, f"{count} {name}"))


def test_sync_endpoints_that_wait_for_a_worker_thread_are_seen(url: str, receiver: Receiver) -> None:
    get(f"{url}/limit")
    with ThreadPoolExecutor(6) as clients:
        assert set(clients.map(get, [f"{url}/sync"] * 6)) == {200}

    spans = server_spans(receiver, "GET /sync", 6)
    assert sorted(span.attributes["server.inflight"] for span in spans) == [0, 1, 2, 3, 4, 5]
    slowest = max(spans, key=lambda span: span.duration_ms)
    assert slowest.duration_ms > 800
    assert slowest.attributes["threadpool.waiting"] >= 3


def test_an_endpoint_that_blocks_the_loop_is_named_on_the_request_beside_it(
    url: str, receiver: Receiver
) -> None:
    with ThreadPoolExecutor(2) as clients:
        statuses: list[Any] = [clients.submit(get, f"{url}/{name}") for name in ("blocks", "waits")]
        assert [status.result(20) for status in statuses] == [200, 200]

    (span,) = server_spans(receiver, "GET /waits", 1)
    (event,) = [fields for name, _, fields in span.events if name == "eventloop.blocked"]
    assert event["code.function.name"].endswith("service.<locals>.blocks")
    assert span.attributes["eventloop.lag_ms"] > 200
    assert span.duration_ms > 250
