"""Decorators for every kind of callable: functions, coroutines, generators, async generators, methods.

Owns when a wrapped call starts, ends and is current. The span of a generator begins with its first item, ends
when it is exhausted, closed or raises, and is current only while its body runs: its consumer never sees it.
Never changes what a function takes, yields, returns or raises.
"""

# pyright: reportPrivateUsage=false
# Starting without becoming current is an operation of stages that only generators need.

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from tailscope import _guard
from tailscope._current import LEFT_ELSEWHERE, attach, get_current, reset

if TYPE_CHECKING:
    from opentelemetry.context.context import Context

Function = TypeVar("Function", bound=Callable[..., Any])
Wrapper = Callable[[Callable[..., Any], Callable[[], Any]], Callable[..., Any]]


class Opened(Protocol):
    """What a wrapper needs of a stage."""

    def __enter__(self) -> Any:
        """Start and become current."""

    def __exit__(self, *exc_info: object) -> None:
        """End."""

    def _start(self, context: Context) -> Context | None:
        """Start without becoming current."""

    def _finish(self, error: BaseException | None) -> None:
        """End what `_start` started."""


def wrap(function: Function, make: Callable[[], Any]) -> Function:
    """Return `function` with a fresh stage from `make` around each call.

    `@staticmethod` and `@classmethod` may stand above or below our decorator.
    """
    if isinstance(function, (staticmethod, classmethod)):
        method = cast("Any", function)
        return cast("Function", type(method)(wrap(method.__func__, make)))
    if not callable(cast("object", function)):  # a property for example
        kind = type(function).__name__
        _guard.report("decorator", f"A {kind} cannot be decorated: decorate the function inside of it")
        return function
    wrapper = wrapper_of(function)
    if wrapper is not None:
        return cast("Function", wrapper(function, make))
    inner = inspect.unwrap(function)
    if inner is not function and wrapper_of(inner) is not None:
        return cast("Function", wrap_wrapper(function, make))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return cast("Function", call)


def is_function(name: Any) -> bool:
    """Say whether what a decorator was given in the place of a name is what it should decorate."""
    return not isinstance(name, str) and callable(getattr(name, "__func__", name))


def label_of(function: Any) -> str:
    """Return the name of a function, as a span without a name of its own has it."""
    function = getattr(function, "__func__", function)
    while isinstance(function, functools.partial):
        function = cast("Any", function).func
    return getattr(function, "__name__", None) or type(function).__name__


def wrapper_of(function: Any) -> Wrapper | None:
    """Return what wraps a function whose work begins after its call has returned; None for any other."""
    for candidate in (function, getattr(function, "__call__", None)):  # noqa: B004 - an object's, if async
        if inspect.isasyncgenfunction(candidate):
            return wrap_async_generator
        if inspect.isgeneratorfunction(candidate):
            return wrap_generator
        if inspect.iscoroutinefunction(candidate):
            return wrap_coroutine
    return None


def wrap_coroutine(function: Callable[..., Any], make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a coroutine function that runs inside a stage."""

    @functools.wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with make():
            return await function(*args, **kwargs)

    return call_async


def wrap_wrapper(function: Callable[..., Any], make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a function for another decorator's, which may run a coroutine or only return it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        opened = make()
        with opened:
            result = function(*args, **kwargs)
            wrapper = LATER.get(type(cast("object", result)))
            if wrapper is not None:
                opened._discard()
        return result if wrapper is None else wrapper(lambda: result, make)()

    return call


class Body:
    """The context in which a generator's body runs, kept while the consumer runs in its own."""

    __slots__ = ("_context", "_stage", "_token")

    def __init__(self, stage: Opened) -> None:
        self._stage = stage
        self._context = stage._start(get_current())

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = attach(self._context)

    def __exit__(self, *exc_info: object) -> None:
        if self._context is not None:
            # A `with` block of the body may still be open: what is current now is current again at the next
            # item.
            self._context = get_current()
            with suppress(*LEFT_ELSEWHERE):  # closed by another task: what is current there stays
                reset(self._token)

    def end(self, error: BaseException | None) -> None:
        """End the stage."""
        self._stage._finish(error)


def wrap_generator(function: Callable[..., Any], make: Callable[[], Any]) -> Callable[..., Any]:
    """Return a generator function whose body runs inside a stage."""

    @functools.wraps(function)
    def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        body = Body(make())
        error: BaseException | None = None
        try:
            return (yield from drive(function(*args, **kwargs), body))
        except BaseException as raised:
            error = raised
            raise
        finally:
            body.end(error)

    return generate


def drive(inner: Generator[Any, Any, Any], body: Body) -> Generator[Any, Any, Any]:
    """Pass items, sent values and thrown exceptions through, each step of the body in its own context."""
    step: Callable[[], Any] = functools.partial(next, inner)
    while True:
        try:
            with body:
                item = step()
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield item
            step = functools.partial(inner.send, sent)
        except GeneratorExit:
            with body:
                inner.close()
            raise
        except BaseException as thrown:  # noqa: BLE001 - handed to the body, which may handle it
            step = functools.partial(inner.throw, thrown)


def wrap_async_generator(function: Callable[..., Any], make: Callable[[], Any]) -> Callable[..., Any]:
    """Return an async generator function whose body runs inside a stage."""

    @functools.wraps(function)
    async def generate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        body = Body(make())
        inner: AsyncGenerator[Any, Any] = function(*args, **kwargs)
        error: BaseException | None = None
        step: Callable[[], Any] = functools.partial(first_item, inner)
        try:
            while True:
                try:
                    with body:
                        item = await step()
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                    step = functools.partial(inner.asend, sent)
                except GeneratorExit:
                    with body:
                        await inner.aclose()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - handed to the body, which may handle it
                    step = functools.partial(inner.athrow, thrown)
        except BaseException as raised:
            error = raised
            raise
        finally:
            body.end(error)

    return generate


def first_item(inner: AsyncGenerator[Any, Any]) -> Any:
    """Ask for the first item without telling the event loop about the generator.

    The loop closes every generator that it knows when it ends. It knows the one around this one, which closes
    it; closing both at a time is an error.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return inner.__anext__()
    finally:
        sys.set_asyncgen_hooks(*hooks)


LATER: Final[dict[type, Wrapper]] = {
    CoroutineType: wrap_coroutine,
    GeneratorType: wrap_generator,
    AsyncGeneratorType: wrap_async_generator,
}
"""What a call may return that begins its work later."""
