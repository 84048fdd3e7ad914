"""LitServe: what its workers do for each request, beneath the request that the API server has accepted.

Owns a callback for LitServe's hooks and the queue that carries trace context: LitServe sends (queue, uid,
time, payload) to a worker process and no context. Never changes the payload, the uid or the time.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.propagate import inject

from tailscope import _guard
from tailscope._runtime import init
from tailscope.integrations._litserve_worker import WORK, Stamp, Work
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[..., Any]

PACKAGE: Final = "litserve"
PATCHES: Final = Patches(PACKAGE)

SUBMITTING: Final[ContextVar[bool]] = ContextVar("tailscope_litserve_submitting", default=False)


def instrument() -> None:
    """Give every server that is made from now on our callback, and have its queue carry trace context."""
    with _guard.guard(PACKAGE):
        server = import_module("litserve.server")
        PATCHES.replace(server.LitServer, "__init__", wrap_server)
        PATCHES.replace(server.LitServer, "_get_request_queue", wrap_queue)
        PATCHES.replace(server.BaseRequestHandler, "_submit_request", wrap_submit)


def uninstrument() -> None:
    """Give servers that are made from now on no callback."""
    PATCHES.restore()


def wrap_server(make: Method) -> Method:
    """Return the server's `__init__`, which adds our callback to those it was given."""

    @functools.wraps(make)
    def call(server: Any, *args: Any, **kwargs: Any) -> None:
        make(server, *args, **kwargs)
        with _guard.guard(PACKAGE):
            server._callback_runner._add_callbacks(callback_class()())

    return call


def wrap_submit(submit: Method) -> Method:
    """Return the hand-over of a request to the workers, in which the queue carries trace context."""

    @functools.wraps(submit)
    async def call(handler: Any, payload: Any) -> Any:
        token = SUBMITTING.set(True)
        try:
            return await submit(handler, payload)
        finally:
            SUBMITTING.reset(token)

    return call


def wrap_queue(get_queue: Method) -> Method:
    """Return what gives the queue, with our stamp on what is put into it while a request is handed over."""

    @functools.wraps(get_queue)
    def call(server: Any, *args: Any, **kwargs: Any) -> Any:
        queue = get_queue(server, *args, **kwargs)
        return Stamping(queue) if SUBMITTING.get() else queue

    return call


class Stamping:
    """A queue in which the time of a request is a stamp."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    def put(self, item: Any, *args: Any, **kwargs: Any) -> Any:
        """Put a request with the stamp in place of its time."""
        with _guard.guard(PACKAGE):
            response_queue, uid, at_s, payload = item
            carrier: dict[str, str] = {}
            inject(carrier)
            if carrier:
                item = (response_queue, uid, Stamp(at_s, carrier), payload)
        return self._queue.put(item, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@functools.cache
def callback_class() -> type[Any]:
    """Return the class of our callback, which LitServe wants derived from its own."""
    base: Any = import_module(PACKAGE).Callback

    class TailscopeCallback(base):  # type: ignore[misc]
        """Records decode_request, predict and encode_response of each request in the worker."""

        def __reduce__(self) -> Any:
            return made_callback, ()

        def on_before_setup(self, *, lit_api: Any, **_: Any) -> None:
            """Begin to record in a worker process, and time the model's setup."""
            WORK.begin(lit_api)
            with _guard.guard(PACKAGE):
                init()
                instrument_loops()
            WORK.start_load()

        def on_after_setup(self, **_: Any) -> None:
            """End the setup."""
            WORK.end_load()

        def on_before_decode_request(self, **_: Any) -> None:
            """Take the requests that the loop has taken from the queue."""
            current_work().start("preprocess")

        def on_after_decode_request(self, **_: Any) -> None:
            """End decoding."""
            current_work().end("preprocess")

        def on_before_predict(self, **_: Any) -> None:
            """Start the model."""
            current_work().start("inference")

        def on_after_predict(self, **_: Any) -> None:
            """End the model; a streamed answer goes on while it is encoded."""
            current_work().end("inference")

        def on_before_encode_response(self, **_: Any) -> None:
            """Start encoding."""
            current_work().start("postprocess")

        def on_after_encode_response(self, **_: Any) -> None:
            """End encoding and the work."""
            current_work().end("postprocess")

    return TailscopeCallback


def made_callback() -> Any:
    """Return a callback, in the process that it was sent to."""
    return callback_class()()


TASK: Final[ContextVar[Work | None]] = ContextVar("tailscope_litserve_task", default=None)
"""The work of the current task, where a loop has several requests under way."""


def current_work() -> Work:
    """Return the work that a callback is about."""
    return TASK.get() or WORK


def instrument_loops() -> None:
    """Learn of failures, and tell the requests apart that an asynchronous loop has under way."""
    base = import_module("litserve.loops.base").LitLoop
    PATCHES.replace(base, "put_error_response", wrap_response)
    PATCHES.replace(base, "put_response", wrap_response)
    simple = import_module("litserve.loops.simple_loops").SingleLoop
    PATCHES.replace(simple, "_process_single_request", wrap_task)
    streaming = import_module("litserve.loops.streaming_loops").StreamingLoop
    PATCHES.replace(streaming, "_process_streaming_request", wrap_task)


def wrap_response(put: Method) -> Method:
    """Return the answer to a request, which ends the step that was under way where it is an error."""

    @functools.wraps(put)
    def call(*args: Any, **kwargs: Any) -> Any:
        error = next((value for value in (*args, *kwargs.values()) if isinstance(value, Exception)), None)
        if error is not None:
            current_work().fail(error)
        return put(*args, **kwargs)

    return call


def wrap_task(process: Method) -> Method:
    """Return the work on one request, in a context that knows which."""

    @functools.wraps(process)
    async def call(loop: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        work = Work()
        with _guard.guard(PACKAGE):
            stamp = request[2]
            WORK.forget(stamp)
            if isinstance(stamp, Stamp):
                work.add(stamp)
        token = TASK.set(work)
        try:
            return await process(loop, request, *args, **kwargs)
        finally:
            work.close()
            TASK.reset(token)

    return call
