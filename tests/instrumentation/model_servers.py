"""Small real servers on free loopback ports that speak the protocols of model servers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import fastapi
import uvicorn
from fastapi.responses import JSONResponse, StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@contextmanager
def served(app: Any, *, deadline_s: float = 20.0) -> Iterator[str]:
    """Run an ASGI application in a thread and give its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + deadline_s
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(deadline_s)
        assert not thread.is_alive()


USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 4},
}


class OpenAIServer:
    """Speaks enough of the OpenAI API; keeps the headers it saw, and fails as often as it is told."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.failures = 0
        self.delay_s = 0.02
        self.gap_s = 0.01
        self.app = fastapi.FastAPI()
        self.app.post("/v1/chat/completions")(self.chat)
        self.app.post("/v1/embeddings")(self.embed)
        self.app.get("/v1/models")(self.models)

    async def chat(self, request: fastapi.Request) -> Any:
        self.headers.append(dict(request.headers))
        body = await request.json()
        if self.failures:
            self.failures -= 1
            return JSONResponse({"error": {"message": "overloaded"}}, 503, headers={"retry-after-ms": "1"})
        await asyncio.sleep(self.delay_s)
        if body.get("stream"):
            return StreamingResponse(self.chunks(body["model"]), media_type="text/event-stream")
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "a secret answer"},
        }
        return JSONResponse(
            {
                "id": "c-1",
                "object": "chat.completion",
                "created": 1,
                "model": "served-model",
                "choices": [choice],
                "usage": USAGE,
            },
            headers={"openai-processing-ms": "19"},
        )

    async def chunks(self, model: str) -> AsyncIterator[str]:
        for place in range(5):
            choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
            yield sse(model, [choice], None)
            await asyncio.sleep(self.gap_s * (6 if place == 2 else 1))
        yield sse(model, [{"index": 0, "delta": {}, "finish_reason": "length"}], None)
        yield sse(model, [], USAGE)
        yield "data: [DONE]\n\n"

    async def embed(self, request: fastapi.Request) -> Any:
        self.headers.append(dict(request.headers))
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        return {"object": "list", "model": "e", "data": [vector], "usage": usage}

    async def models(self) -> Any:
        return {"object": "list", "data": []}


def sse(model: str, choices: list[Any], usage: Any) -> str:
    """Return one event of a streamed completion."""
    body = {
        "id": "c-2",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": choices,
        "usage": usage,
    }
    return f"data: {json.dumps(body)}\n\n"
