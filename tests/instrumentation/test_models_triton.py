"""tritonclient over HTTP and gRPC, sync and async, against small servers that speak its protocol."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope.integrations import triton as integration

pytest.importorskip(
    "tritonclient", reason="tritonclient is what these tests trace; it pins an older protobuf"
)

import fastapi
import grpc
import numpy as np
from fastapi.responses import JSONResponse

from tests.instrumentation.model_servers import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Recorded = Callable[[], list[Any]]

pytestmark = pytest.mark.filterwarnings("ignore")
SEEN: list[dict[str, str]] = []


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    app = fastapi.FastAPI()

    @app.post("/v2/models/{model}/infer")
    async def infer(model: str, request: fastapi.Request) -> Any:
        SEEN.append(dict(request.headers))
        await asyncio.sleep(0.02)
        if model == "broken":
            return JSONResponse({"error": "no such model"}, 400)
        output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
        return JSONResponse({"model_name": model, "model_version": "7", "outputs": [output]})

    with served(app) as url:
        yield url.removeprefix("http://")


@pytest.fixture(scope="module")
def grpc_url() -> Iterator[str]:
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    class Servicer(service_pb2_grpc.GRPCInferenceServiceServicer):
        def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
            SEEN.append(
                {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
            )
            return service_pb2.ModelInferResponse(model_name=request.model_name, model_version="9")

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0).wait()


@pytest.fixture(autouse=True)
def instrumented() -> Iterator[None]:
    SEEN.clear()
    integration.instrument()
    yield
    integration.uninstrument()


def inputs_of(module: Any) -> list[Any]:
    one = module.InferInput("x", [1, 2], "FP32")
    data = np.zeros((1, 2), dtype=np.float32)
    if "http" in module.__name__:
        one.set_data_from_numpy(data, binary_data=False)
    else:
        one.set_data_from_numpy(data)
    return [one]


def clients(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.kind == "client"]


def test_http_tells_model_shape_connecting_and_waiting(http_url: str, recorded: Recorded) -> None:
    import tritonclient.http as triton

    client = triton.InferenceServerClient(http_url)
    with tailscope.request("ask"):
        for _ in range(2):
            client.infer("bert", inputs_of(triton))
    client.close()

    first, second = clients(spans := recorded())
    assert first.name == "infer bert"
    assert first.attributes["model.name"] == "bert"
    assert first.attributes["model.version"] == "7"
    assert first.attributes["input.shape"] == "1x2"
    assert first.attributes["input.dtype"] == "FP32"
    assert first.attributes["http.client.connect_ms"] > 0
    assert "http.client.connect_ms" not in second.attributes
    assert 19 <= second.attributes["http.client.wait_ms"] <= second.duration_ms
    assert [span.parent_id for span in spans if span.name == "network.connect"] == [first.span_id]
    assert SEEN[0]["traceparent"].split("-")[1:3] == [first.trace_id, first.span_id]


def test_an_error_of_the_server_is_raised_and_marked(http_url: str, recorded: Recorded) -> None:
    import tritonclient.http as triton

    client = triton.InferenceServerClient(http_url)
    with tailscope.request("ask"), pytest.raises(triton.InferenceServerException, match="no such model"):
        client.infer("broken", inputs_of(triton))
    client.close()

    (span,) = clients(recorded())
    assert "InferenceServerException" in span.attributes["error.type"]


def test_grpc_is_recorded_and_sends_the_trace_along(grpc_url: str, recorded: Recorded) -> None:
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(grpc_url)
    with tailscope.request("ask"):
        client.infer("bert", inputs_of(triton), headers={"x-mine": "kept"})
    client.close()

    (span,) = clients(recorded())
    assert span.attributes["model.version"] == "9"
    assert SEEN[0]["traceparent"].split("-")[1:3] == [span.trace_id, span.span_id]
    assert SEEN[0]["x-mine"] == "kept"


def test_the_asynchronous_clients_are_recorded(http_url: str, grpc_url: str, recorded: Recorded) -> None:
    import tritonclient.grpc.aio
    import tritonclient.http.aio

    async def main() -> None:
        async with tailscope.request("ask"):
            async with tritonclient.http.aio.InferenceServerClient(http_url) as client:
                await client.infer("bert", inputs_of(tritonclient.http.aio))
            async with tritonclient.grpc.aio.InferenceServerClient(grpc_url) as client:
                await client.infer("bert", inputs_of(tritonclient.grpc.aio))

    asyncio.run(main())

    over_http, over_grpc = clients(recorded())
    assert (over_http.attributes["model.version"], over_grpc.attributes["model.version"]) == ("7", "9")
    assert {headers["traceparent"].split("-")[2] for headers in SEEN} == {
        over_http.span_id,
        over_grpc.span_id,
    }
