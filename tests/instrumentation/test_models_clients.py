"""Calls of TorchServe, TF Serving, KServe and OpenAI routes by httpx and requests, against a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import fastapi
import httpx
import pytest
import requests

import tailscope
from tailscope.integrations import httpx as httpx_integration
from tailscope.integrations import inference_clients as integration
from tests.instrumentation.model_servers import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Recorded = Callable[[], list[Any]]

SEEN: list[dict[str, str]] = []


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    app = fastapi.FastAPI()

    @app.post("/{path:path}")
    async def answer(path: str, request: fastapi.Request) -> Any:
        SEEN.append(dict(request.headers))
        await asyncio.sleep(0.02)
        if path.endswith("broken"):
            return fastapi.Response(status_code=503)
        return fastapi.Response(b"{}", headers={"x-envoy-upstream-service-time": "17"})

    with served(app) as url:
        yield url


@pytest.fixture(autouse=True)
def instrumented() -> Iterator[None]:
    SEEN.clear()
    integration.instrument()
    yield
    integration.uninstrument()


def clients(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.kind == "client"]


@pytest.mark.parametrize(
    ("path", "protocol", "operation", "model", "version"),
    [
        ("/predictions/resnet", "torchserve", "predictions", "resnet", None),
        ("/predictions/resnet/2.0", "torchserve", "predictions", "resnet", "2.0"),
        ("/wfpredict/flow", "torchserve", "wfpredict", "flow", None),
        ("/v1/models/half:predict", "predict-v1", "predict", "half", None),
        ("/v1/models/half/versions/3:predict", "tensorflow-serving", "predict", "half", "3"),
        ("/v2/models/bert/infer", "kserve-v2", "infer", "bert", None),
        ("/v2/models/bert/versions/1/infer", "kserve-v2", "infer", "bert", "1"),
        ("/v2/models/llm/generate_stream", "kserve-v2", "generate_stream", "llm", None),
        ("/v1/chat/completions", "openai", "chat/completions", None, None),
    ],
)
def test_an_inference_route_is_recognised(
    path: str, protocol: str, operation: str, model: str | None, version: str | None
) -> None:
    fields = integration.recognised(path) or {}

    assert fields["inference.protocol"] == protocol
    assert fields["inference.operation"] == operation
    assert (fields.get("model.name"), fields.get("model.version")) == (model, version)


@pytest.mark.parametrize(
    "path", ["/", "/v2/models/bert", "/v2/health/ready", "/v1/models", "/ping", "/models/x"]
)
def test_other_routes_are_left_alone(path: str, address: str, recorded: Recorded) -> None:
    assert integration.recognised(path) is None
    with tailscope.request("ask"), httpx.Client() as client:
        client.post(address + path)

    assert clients(recorded()) == []


def test_httpx_tells_connecting_waiting_and_the_servers_own_time(address: str, recorded: Recorded) -> None:
    with tailscope.request("ask"), httpx.Client() as client:
        for _ in range(2):
            client.post(f"{address}/v2/models/bert/infer", json={})

    first, second = clients(spans := recorded())
    assert first.name == "infer bert"
    assert first.attributes["http.client.connect_ms"] > 0
    assert "http.client.connect_ms" not in second.attributes
    assert 19 <= second.attributes["http.client.wait_ms"] <= second.duration_ms
    assert second.attributes["server.processing_ms"] == 17.0
    assert second.attributes["http.response.status_code"] == 200
    assert SEEN[0]["traceparent"].split("-")[1:3] == [first.trace_id, first.span_id]
    (connect,) = [span for span in spans if span.name == "network.connect"]
    assert connect.parent_id == first.span_id


def test_a_connection_is_one_span_also_where_the_integration_of_httpx_is_on(
    address: str, recorded: Recorded
) -> None:
    httpx_integration.instrument()
    try:
        with tailscope.request("ask"), httpx.Client() as client:
            client.post(f"{address}/v2/models/bert/infer", json={})
    finally:
        httpx_integration.uninstrument()

    (call,) = clients(spans := recorded())
    assert [span.parent_id for span in spans if span.name == "network.connect"] == [call.span_id]
    assert call.attributes["http.client.connect_ms"] > 0


def test_the_async_client_is_recorded(address: str, recorded: Recorded) -> None:
    async def main() -> None:
        async with tailscope.request("ask"), httpx.AsyncClient() as client:
            await client.post(f"{address}/v1/models/half:predict", json={})

    asyncio.run(main())

    (span,) = clients(recorded())
    assert span.name == "predict half"
    assert span.attributes["http.client.wait_ms"] >= 19


def test_requests_is_recorded(address: str, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        answer = requests.post(f"{address}/predictions/resnet", data=b"x", timeout=10)

    assert answer.status_code == 200
    (span,) = clients(recorded())
    assert span.name == "predictions resnet"
    assert span.attributes["server.processing_ms"] == 17.0
    assert SEEN[0]["traceparent"].split("-")[2] == span.span_id


def test_a_refusal_and_a_dead_server_mark_the_span(address: str, recorded: Recorded) -> None:
    with tailscope.request("ask"), httpx.Client() as client:
        client.post(f"{address}/predictions/broken")
        with pytest.raises(httpx.ConnectError):
            client.post("http://127.0.0.1:9/predictions/resnet")

    refused, dead = clients(recorded())
    assert refused.attributes["error.type"] == "503"
    assert dead.attributes["error.type"] == "httpx.ConnectError"
    assert dead.status[0] == 2
