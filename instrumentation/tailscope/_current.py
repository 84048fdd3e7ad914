"""Which span is current, through OpenTelemetry's own context and nothing else.

Owns the one access to the context variable behind `opentelemetry.context`. Reading it directly saves three
calls a span (0.4 us); where another runtime context is configured (OTEL_PYTHON_CONTEXT), the public functions
are used. Never replaces or patches OpenTelemetry's context.
"""

# pyright: reportPrivateUsage=false
# The key and the variable of the current span are private in OpenTelemetry.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as context_api
from opentelemetry.context.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.trace import propagation

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Token

    from opentelemetry.trace import Span

# The key is random for each process; the public set_span_in_context costs a copy and two calls more.
SPAN_KEY: Final[str] = propagation._SPAN_KEY

get_current: Callable[[], Context]
attach: Callable[[Context], Token[Context]]
reset: Callable[[Token[Context]], None]

variable: Any = None
"""The context variable itself; None where another runtime context is configured."""

_runtime: Any = context_api._RUNTIME_CONTEXT
if type(_runtime) is ContextVarsRuntimeContext:
    variable = _runtime._current_context
    get_current, attach, reset = variable.get, variable.set, variable.reset
else:
    get_current, attach, reset = _runtime.get_current, _runtime.attach, _runtime.detach


def with_span(context: Context, span: Span) -> Context:
    """Return the context in which `span` is current."""
    return Context({**context, SPAN_KEY: span})


LEFT_ELSEWHERE: Final = (ValueError, RuntimeError, TypeError)
"""What resetting the context raises: in another task than the one that entered, twice, without entering."""


def leave(token: Any, span: object, error: BaseException | None = None) -> None:
    """Make the context before `token` current again, as `span` is left with `error`.

    A generator that is closed, by another task or when it is collected, runs its `finally` blocks wherever
    that happens, perhaps in another request: what is current there stays, unless it is `span`.
    """
    if isinstance(error, GeneratorExit) and get_current().get(SPAN_KEY) is not span:
        return
    try:
        reset(token)
    except LEFT_ELSEWHERE:
        previous = getattr(token, "old_value", None)
        if isinstance(previous, Context) and get_current().get(SPAN_KEY) is span:
            attach(previous)
