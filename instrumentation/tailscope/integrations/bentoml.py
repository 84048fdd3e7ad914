"""BentoML: its server span goes to our provider, with decoding, waiting, model and encoding beneath.

Owns the replacement of the service's steps and of the dispatcher that makes batches. BentoML traces with a
provider of its own that samples nothing unless it is configured; where it is, that one records and ours stays
out. Never changes what is batched, or when.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from tailscope import _guard
from tailscope._batch import batch, enqueue, record
from tailscope._current import get_current
from tailscope._local import now
from tailscope._stage import stage
from tailscope.integrations._imports import forget, when_imported
from tailscope.integrations._model_calls import inside_request
from tailscope.integrations._patches import MARK, Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[..., Any]

PACKAGE: Final = "bentoml"
PATCHES: Final = Patches(PACKAGE)
SERVER: Final = "_bentoml_impl.server.app"

TICKETS: Final = "_tailscope_tickets"
"""Attribute of a dispatcher: tickets of requests in its queue by the id of their data."""

BATCHING: Final[ContextVar[bool]] = ContextVar("tailscope_bentoml_batching", default=False)
"""Set while a batch is computed, whose time its requests already have."""


def instrument() -> None:
    """Record the services of this process; call it in the service's module, which every worker imports."""
    when_imported(SERVER, instrument_server)
    with _guard.guard(PACKAGE):
        descriptor = import_module("_bentoml_sdk.io_models").IODescriptor
        for name, label in (("from_http_request", "preprocess"), ("to_http_response", "serialize")):
            PATCHES.replace(descriptor, name, functools.partial(wrap_step, name=label))


def instrument_server() -> None:
    """Record what the server does, where there is one: a client of a service imports none."""
    factory = import_module(SERVER).ServiceAppFactory
    PATCHES.replace(factory, "__call__", wrap_app)
    PATCHES.replace(factory, "_to_thread", wrap_thread)
    dispatcher = import_module("bentoml._internal.marshal.dispatcher").CorkDispatcher
    PATCHES.replace(dispatcher, "inbound_call", wrap_inbound)
    PATCHES.replace(dispatcher, "outbound_call", wrap_outbound)


def uninstrument() -> None:
    """Record no further requests of services that are made from now on."""
    forget(SERVER, instrument_server)
    PATCHES.restore()


def wrap_app(make: Method) -> Method:
    """Return what makes a service's application, whose middleware then traces with our provider."""

    @functools.wraps(make)
    def call(factory: Any, *args: Any, **kwargs: Any) -> Any:
        with _guard.guard(PACKAGE):
            container = import_module("bentoml._internal.configuration.containers").BentoMLContainer
            provider = trace.get_tracer_provider()
            nobody = isinstance(provider, trace.ProxyTracerProvider)
            if not nobody and not container.tracing.sample_rate.get():
                container.tracer_provider.set(provider)
        return make(factory, *args, **kwargs)

    return call


def wrap_step(step: Any, *, name: str) -> Any:
    """Return a class method of the descriptors of inputs and outputs inside a stage."""
    inner: Method = step.__func__

    @functools.wraps(inner)
    async def call(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not inside_request():
            return await inner(cls, *args, **kwargs)
        with stage(name):
            return await inner(cls, *args, **kwargs)

    setattr(call, MARK, step)
    return classmethod(call)


def wrap_thread(to_thread: Method) -> Method:
    """Return the call of a synchronous API in a thread: waiting for one is `queue`, the call `inference`."""

    @functools.wraps(to_thread)
    async def call(factory: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        # A generator is asked for each item by a call of its own.
        if not inside_request() or BATCHING.get() or function is next:
            return await to_thread(factory, function, *args, **kwargs)
        context, asked_ns = get_current(), now()

        @functools.wraps(function)
        def compute(*inner_args: Any, **inner_kwargs: Any) -> Any:
            with _guard.guard(PACKAGE):
                record(context, "queue", (asked_ns, now()), {}, [], None)
            with stage("inference", gpu=True):
                return function(*inner_args, **inner_kwargs)

        return await to_thread(factory, compute, *args, **kwargs)

    return call


def wrap_inbound(inbound: Method) -> Method:
    """Return the entry into a dispatcher's queue, which takes a ticket."""

    @functools.wraps(inbound)
    async def call(dispatcher: Any, data: Any) -> Any:
        tickets: dict[int, Any] = {}
        with _guard.guard(PACKAGE):
            if not hasattr(dispatcher, TICKETS):
                setattr(dispatcher, TICKETS, {})
            tickets = getattr(dispatcher, TICKETS)
            tickets[id(data)] = enqueue(queue="bentoml")
        try:
            return await inbound(dispatcher, data)
        finally:
            tickets.pop(id(data), None)

    return call


def wrap_outbound(outbound: Method) -> Method:
    """Return the work on a batch, inside a batch over the requests that took a ticket."""

    @functools.wraps(outbound)
    async def call(dispatcher: Any, jobs: Any, *args: Any, **kwargs: Any) -> Any:
        known: dict[int, Any] = getattr(dispatcher, TICKETS, {})
        tickets = [known.get(id(job.data)) for job in jobs]
        opened = batch(
            [ticket for ticket in tickets if ticket is not None], max_size=dispatcher.max_batch_size
        )
        opened.__enter__()
        token = BATCHING.set(True)
        try:
            return await outbound(dispatcher, jobs, *args, **kwargs)
        finally:
            BATCHING.reset(token)
            error = failure_of(jobs)
            opened.__exit__(None if error is None else type(error), error, None)

    return call


def failure_of(jobs: Any) -> BaseException | None:
    """Return why the batch failed: BentoML catches it and hands it to each request as a result."""
    for job in jobs:
        if job.future.done() and not job.future.cancelled():
            result = job.future.result()
            if isinstance(result, BaseException):
                return result
    return None
