"""The `openai` package: each call of an OpenAI-compatible server is a CLIENT span by the GenAI conventions.

Owns the replacement of the client's `request`, of the hook that builds a request, and of what a stream hands
out. Records models, token counts, times and the size of the answer, never a prompt and never an answer.
"""

# pyright: reportPrivateUsage=false
# A stream's span ends long after the call that started it, which is not an operation of `with`.

from __future__ import annotations

import functools
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from tailscope import _guard
from tailscope.integrations._exchange import traced
from tailscope.integrations._genai_call import Call, inject_headers, watch, watch_async
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[..., Any]

PACKAGE: Final = "openai"
PATCHES: Final = Patches(PACKAGE)

CALL: Final[ContextVar[Call | None]] = ContextVar("tailscope_openai_call", default=None)
"""The call whose requests are being built; a retried one builds several."""

WATCHED: Final = "_tailscope_call"
"""Attribute of a stream: the call that ends with it."""

OPERATIONS: Final = {
    "/chat/completions": "chat",
    "/responses": "chat",
    "/completions": "text_completion",
    "/embeddings": "embeddings",
}
"""Endings of the path that are model calls; the first that matches. Files, models and the like are not."""

REQUEST_FIELDS: Final = {
    "model": "gen_ai.request.model",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "n": "gen_ai.request.choice.count",
}


def instrument() -> None:
    """Record the calls of every client, sync and async, also of those that exist already."""
    with _guard.guard(PACKAGE):
        base = import_module("openai._base_client")
        package = import_module(PACKAGE)
        PATCHES.replace(base.SyncAPIClient, "request", wrap_request)
        PATCHES.replace(base.AsyncAPIClient, "request", wrap_request_async)
        PATCHES.replace(base.BaseClient, "_build_request", wrap_build)
        PATCHES.replace(package.Stream, "close", wrap_close)
        PATCHES.replace(package.AsyncStream, "close", wrap_close_async)


def uninstrument() -> None:
    """Record no further calls."""
    PATCHES.restore()


def wrap_request(request: Method) -> Method:
    """Return the sync client's `request` with a span around it, or until its stream ends."""

    @functools.wraps(request)
    def call(client: Any, cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        opened = open_call(client, options, streaming=bool(kwargs.get("stream")))
        if opened is None:
            return request(client, cast_to, options, *args, **kwargs)
        token = CALL.set(opened)
        try:
            with opened:
                answer = request(client, cast_to, options, *args, **kwargs)
        finally:
            CALL.reset(token)
        with _guard.guard(PACKAGE):
            if hasattr(answer, "_iterator"):
                answer._iterator = watch(answer._iterator, opened)
                setattr(answer, WATCHED, opened)
                return answer
            opened.take(answer)
        opened.finish(None)
        return answer

    return call


def wrap_request_async(request: Method) -> Method:
    """Return the async client's `request` with a span around it, or until its stream ends."""

    @functools.wraps(request)
    async def call(client: Any, cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        opened = open_call(client, options, streaming=bool(kwargs.get("stream")))
        if opened is None:
            return await request(client, cast_to, options, *args, **kwargs)
        token = CALL.set(opened)
        try:
            with opened:
                answer = await request(client, cast_to, options, *args, **kwargs)
        finally:
            CALL.reset(token)
        with _guard.guard(PACKAGE):
            if hasattr(answer, "_iterator"):
                answer._iterator = watch_async(answer._iterator, opened)
                setattr(answer, WATCHED, opened)
                return answer
            opened.take(answer)
        opened.finish(None)
        return answer

    return call


def wrap_build(build: Method) -> Method:
    """Return the hook that builds each attempt's request, which carries our headers and tells its times."""

    @functools.wraps(build)
    def call(client: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
        request = build(client, options, *args, **kwargs)
        opened = CALL.get()
        if opened is not None:
            with _guard.guard(PACKAGE):
                opened.attempt()
                inject_headers(opened, request.headers)
                asynchronous = "Async" in "".join(kind.__name__ for kind in type(client).__mro__)
                traced(request, opened.exchange, asynchronous=asynchronous)
        return request

    return call


def wrap_close(close: Method) -> Method:
    """Return a stream's `close`, which ends its span: the consumer wants no more."""

    @functools.wraps(close)
    def call(stream: Any) -> Any:
        try:
            return close(stream)
        finally:
            finish_stream(stream)

    return call


def wrap_close_async(close: Method) -> Method:
    """Return an async stream's `close`, which ends its span."""

    @functools.wraps(close)
    async def call(stream: Any) -> Any:
        try:
            return await close(stream)
        finally:
            finish_stream(stream)

    return call


def finish_stream(stream: Any) -> None:
    """End the span of a stream that is closed."""
    opened: Call | None = getattr(stream, WATCHED, None)
    if opened is not None:
        opened.leave()


def request_fields(body: Any) -> dict[str, Any]:
    """Return what the body of a request says about the call, prompts left out."""
    if not isinstance(body, dict):
        return {}
    given = cast("dict[str, Any]", body)
    found = {key: given[name] for name, key in REQUEST_FIELDS.items() if name in given}
    return {key: value for key, value in found.items() if isinstance(value, (str, int, float))}


def open_call(client: Any, options: Any, *, streaming: bool) -> Call | None:
    """Return the call, not yet started; None for what is no model call."""
    try:
        path = str(options.url).partition("?")[0]
        operation = next((OPERATIONS[end] for end in OPERATIONS if path.endswith(end)), None)
        return None if operation is None else call_of(client, options, operation, streaming=streaming)
    except Exception as error:  # noqa: BLE001 - the package's own objects, in a version we do not know
        _guard.report("openai:call", f"A call could not be recorded: {error!r}")
        return None


def call_of(client: Any, options: Any, operation: str, *, streaming: bool) -> Call:
    """Return the call of a model operation, with what is known before it is sent."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "azure.ai.openai" if "Azure" in type(client).__name__ else PACKAGE,
        "server.address": client.base_url.host,
        **request_fields(options.json_data),
    }
    if client.base_url.port:
        attributes["server.port"] = client.base_url.port
    if streaming:
        attributes["gen_ai.request.stream"] = True
    return Call(f"{operation} {attributes.get('gen_ai.request.model', '')}".strip(), attributes)
