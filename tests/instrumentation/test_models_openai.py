"""The openai package against a real server on loopback: sync, async, streamed, retried, abandoned."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope.integrations import openai as integration
from tests.instrumentation.model_servers import OpenAIServer, served

openai = pytest.importorskip("openai", reason="the openai package is what these tests trace")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Recorded = Callable[[], list[Any]]

MESSAGES = [{"role": "user", "content": "a secret prompt"}]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[OpenAIServer, str]]:
    server = OpenAIServer()
    with served(server.app) as address:
        yield server, address


@pytest.fixture(autouse=True)
def server(running: tuple[OpenAIServer, str]) -> OpenAIServer:
    running[0].headers.clear()
    running[0].failures = 0
    return running[0]


@pytest.fixture
def address(running: tuple[OpenAIServer, str]) -> str:
    return f"{running[1]}/v1"


@pytest.fixture(autouse=True)
def instrumented() -> Iterator[None]:
    integration.instrument()
    yield
    integration.uninstrument()


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=address, api_key="k") as made:
        yield made


def chats(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.name == "chat small"]


def test_a_completion_is_a_client_span_by_the_genai_conventions(client: Any, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        client.chat.completions.create(model="small", messages=MESSAGES, max_tokens=9, temperature=0.5)

    (span,) = chats(recorded())
    attributes = span.attributes
    assert span.kind == "client"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "small",
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": "c-1",
        "gen_ai.response.model": "served-model",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "server.address": "127.0.0.1",
        "http.response.status_code": 200,
        "server.processing_ms": 19.0,
    }
    assert {key: attributes.get(key) for key in expected} == expected
    assert attributes["server.port"] > 0


def test_connecting_and_waiting_are_told_apart(client: Any, recorded: Recorded) -> None:
    for _ in range(2):
        with tailscope.request("ask"):
            client.chat.completions.create(model="small", messages=MESSAGES)

    spans = recorded()
    first, second = chats(spans)
    assert first.attributes["http.client.connect_ms"] > 0
    assert "http.client.connect_ms" not in second.attributes
    for span in (first, second):
        assert 19 <= span.attributes["http.client.wait_ms"] < span.duration_ms
        assert span.attributes["http.client.pool_wait_ms"] >= 0
    (connect,) = [span for span in spans if span.name == "network.connect"]
    assert connect.parent_id == first.span_id
    assert first.start <= connect.start <= connect.end <= first.end


def test_the_server_continues_the_trace(client: Any, server: OpenAIServer, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        client.chat.completions.create(model="small", messages=MESSAGES)

    (span,) = chats(recorded())
    assert server.headers[0]["traceparent"] == f"00-{span.trace_id}-{span.span_id}-03"


def test_prompts_and_answers_are_not_recorded(client: Any, recorded: Recorded) -> None:
    client.chat.completions.create(model="small", messages=MESSAGES)
    for _ in client.chat.completions.create(model="small", messages=MESSAGES, stream=True):
        pass

    assert "secret" not in repr(recorded())


def test_a_stream_ends_with_its_last_chunk_and_tells_the_first(client: Any, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        stream = client.chat.completions.create(
            model="small", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]

    assert pieces == ["x"] * 5 + [None]
    (span,) = chats(recorded())
    attributes = span.attributes
    assert attributes["gen_ai.request.stream"] is True
    assert 0.02 <= attributes["gen_ai.response.time_to_first_chunk"] < span.duration_ms / 1e3
    assert attributes["tailscope.stream.chunks"] == 7
    assert 55 <= attributes["tailscope.stream.gap_max_ms"] <= span.duration_ms
    assert attributes["gen_ai.usage.output_tokens"] == 5
    assert attributes["tailscope.tpot_ms"] >= 20
    assert attributes["gen_ai.response.finish_reasons"] == ["length"]
    assert span.duration_ms >= 110


@pytest.mark.parametrize("way", ["break", "close", "with", "unread"])
def test_an_abandoned_stream_ends_without_an_error(way: str, client: Any, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        stream = client.chat.completions.create(model="small", messages=MESSAGES, stream=True)
        if way == "with":
            with stream:
                next(iter(stream))
        elif way != "unread":
            next(iter(stream))
        if way in {"close", "unread"}:
            stream.close()
        del stream
        gc.collect()  # a stream of the package refers to itself

    (span,) = chats(recorded())
    assert span.status == (0, "")
    assert span.attributes["tailscope.stream.abandoned"] is True
    assert span.attributes.get("tailscope.stream.chunks") == (None if way == "unread" else 1)


def test_a_stream_that_is_forgotten_ends_with_its_last_chunk(client: Any, recorded: Recorded) -> None:
    stream = client.chat.completions.create(model="small", messages=MESSAGES, stream=True)
    next(iter(stream))
    time.sleep(0.3)
    del stream
    gc.collect()

    (span,) = chats(recorded())
    assert 20 <= span.duration_ms < 290


def test_a_stream_does_not_stay_current_for_its_consumer(client: Any, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        for _ in client.chat.completions.create(model="small", messages=MESSAGES, stream=True):
            with tailscope.stage("postprocess"):
                pass

    spans = recorded()
    (request,) = [span for span in spans if span.name == "ask"]
    parents = {span.parent_id for span in spans if span.name == "postprocess"}
    assert parents == {request.span_id}


def test_retries_are_counted_and_happen_inside_one_span(
    client: Any, server: OpenAIServer, recorded: Recorded
) -> None:
    server.failures = 2
    with tailscope.request("ask"):
        client.chat.completions.create(model="small", messages=MESSAGES)

    (span,) = chats(recorded())
    assert span.attributes["retry.count"] == 2
    assert [(name, fields) for name, _, fields in span.events] == [
        ("retry", {"retry.count": 1}),
        ("retry", {"retry.count": 2}),
    ]
    assert span.attributes["http.response.status_code"] == 200
    assert {headers["traceparent"] for headers in server.headers} == {server.headers[0]["traceparent"]}


def test_a_refused_call_raises_as_before_and_is_marked(
    client: Any, server: OpenAIServer, recorded: Recorded
) -> None:
    server.failures = 9
    with tailscope.request("ask"), pytest.raises(openai.InternalServerError):
        client.with_options(max_retries=0).chat.completions.create(model="small", messages=MESSAGES)

    (span,) = chats(recorded())
    assert span.status[0] == 2
    assert span.attributes["error.type"] == "openai.InternalServerError"
    assert span.attributes["http.response.status_code"] == 503


def test_the_async_client_and_its_streams_are_recorded(address: str, recorded: Recorded) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=address, api_key="k") as client, tailscope.request("ask"):
            await client.chat.completions.create(model="small", messages=MESSAGES)
            stream = await client.chat.completions.create(model="small", messages=MESSAGES, stream=True)
            async for _ in stream:
                pass
            stream = await client.chat.completions.create(model="small", messages=MESSAGES, stream=True)
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(main())

    plain, streamed, broken = chats(recorded())
    assert plain.attributes["gen_ai.usage.output_tokens"] == 5
    assert plain.attributes["http.client.connect_ms"] > 0
    assert streamed.attributes["tailscope.stream.chunks"] == 7
    assert broken.attributes["tailscope.stream.chunks"] == 1
    assert {span.status[0] for span in (plain, streamed, broken)} == {0}


def test_a_cancelled_call_ends_its_span(address: str, server: OpenAIServer, recorded: Recorded) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=address, api_key="k") as client:
            call = client.chat.completions.create(model="small", messages=MESSAGES)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.05)

    server.delay_s = 0.5
    try:
        asyncio.run(main())
    finally:
        server.delay_s = 0.02

    (span,) = chats(recorded())
    assert span.attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_embeddings_are_recorded_and_lists_of_models_are_not(client: Any, recorded: Recorded) -> None:
    with tailscope.request("ask"):
        client.embeddings.create(model="e", input="text")
        client.models.list()

    (span,) = [span for span in recorded() if span.kind == "client"]
    assert span.name == "embeddings e"
    assert span.attributes["gen_ai.usage.input_tokens"] == 3


def test_a_call_before_init_works_and_costs_no_header(client: Any, server: OpenAIServer) -> None:
    answer = client.chat.completions.create(model="small", messages=MESSAGES)

    assert answer.usage.completion_tokens == 5
    assert "traceparent" not in server.headers[0]


def test_uninstrument_puts_everything_back(client: Any, recorded: Recorded) -> None:
    integration.instrument()
    integration.uninstrument()
    client.chat.completions.create(model="small", messages=MESSAGES)

    assert chats(recorded()) == []
