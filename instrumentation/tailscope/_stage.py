"""Stages: the spans of our own API, each its own context manager and decorator.

Owns `stage` and `dependency` and what they share with `request`. Three situations, decided when a stage is
entered: recording by us (the fast path), recording by an SDK that the service has set (`_foreign`), or not at
all (before `init`, or in a trace that is not sampled), which costs a few attribute loads. Never raises into
the host.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from opentelemetry import trace
from opentelemetry.context.context import Context

from tailscope import _guard
from tailscope._current import LEFT_ELSEWHERE, SPAN_KEY, attach, get_current, leave, reset, with_span
from tailscope._decorate import is_function, label_of, wrap
from tailscope._local import new_bits, now
from tailscope._span import CLIENT, INTERNAL, NOT_RECORDING, NOT_STARTED, RECORDING, Scope, Span, unix_ns
from tailscope._values import fields_of, snapshot
from tailscope.conventions import INFERENCE_SUBSTAGES, STAGES

if TYPE_CHECKING:
    from contextvars import Token
    from types import TracebackType

    from tailscope._foreign import ForeignSpan, ForeignTracer

Function = TypeVar("Function", bound=Callable[..., Any])

KNOWN_STAGES: Final = frozenset(STAGES)


class Aside:
    """What `__exit__` finds in place of a token when the stage took another way than the fast path."""

    __slots__ = ("foreign", "outer")

    def __init__(self, foreign: ForeignSpan | None = None, outer: Any = None) -> None:
        self.foreign = foreign
        self.outer = outer


class Active:
    """Where stages record at this moment; `init` and `shutdown` change it."""

    __slots__ = ("foreign", "scope")

    def __init__(self) -> None:
        self.scope: Scope | None = None
        self.foreign: ForeignTracer | None = None


ACTIVE: Final = Active()


def stage_name(name: str) -> str | None:
    """Return what `tailscope.stage` says for a name: a known stage or one dotted below, else None."""
    return name if name.partition(".")[0] in KNOWN_STAGES else None


class Stage(Span):
    """One stage of a request: `with stage("inference") as s`, `async with`, or a decorator."""

    __slots__ = ("_token",)

    _kind = INTERNAL
    _foreign: ForeignSpan | None = None
    _other: trace.Span | None = None
    """The span that this stage stands for, if it is another's: a foreign SDK's, a framework's server span."""
    _token: Token[Context] | Aside | None

    def __enter__(self) -> Self:
        scope = ACTIVE.scope
        if scope is None or self._end_ns != NOT_STARTED:
            return self._enter_aside()
        context = get_current()
        parent: Any = context.get(SPAN_KEY)
        try:
            self._local, self._parent_id = parent._local, parent._id
        except AttributeError:
            return self._enter_aside()
        self._scope = scope
        self._context = None
        self._extra = None
        self._id = new_bits(64)
        self._end_ns = RECORDING
        # The usual context holds the span alone; copying one that holds baggage too costs 0.1 us more.
        self._token = attach(
            Context({SPAN_KEY: self}) if len(context) == 1 else Context({**context, SPAN_KEY: self})
        )
        self._start_ns = now()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        token: Any = self._token
        if type(token) is Aside:
            self._exit_aside(token, exc)
            return
        if exc is None:
            try:
                reset(token)
            except LEFT_ELSEWHERE:
                leave(token, self)
        else:
            leave(token, self, exc)
            self._fail(exc)
        self._token = None
        if not self._end_ns:
            self._end_ns = now()
            scope = self._scope
            if len(scope.pending) < scope.room:
                scope.pending.append(self)
            else:
                scope.full(self)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, tb)

    def __call__(self, function: Function) -> Function:
        """Wrap a function, coroutine function, generator or async generator: each call is a stage."""
        return wrap(function, self._copy)

    def _copy(self) -> Stage:
        """Return a fresh stage like this one, for one call of a decorated function."""
        return stage(self._name, attributes=self._attributes)

    def _enter_aside(self) -> Self:
        """Enter off the fast path: a local root, a foreign SDK, no recording, a second entry."""
        if self._end_ns != NOT_STARTED:
            _guard.report(
                "reused", f"The handle of stage {self._name!r} was entered again; make one for each use"
            )
            self._token = Aside(outer=getattr(self, "_token", None))
            return self
        context = self._start(get_current())
        token = None if context is None else attach(context)
        # Where we record, the way out is the fast one.
        ours = context is not None and self._foreign is None
        self._token = token if ours else Aside(self._foreign, token)
        return self

    def _start(self, context: Context) -> Context | None:
        """Start beneath the context's span without becoming current; return the body's context, if any."""
        scope, foreign = ACTIVE.scope, ACTIVE.foreign
        if scope is not None and self._begin(context.get(SPAN_KEY), scope):
            return with_span(context, self)
        self._end_ns = NOT_RECORDING
        if scope is None and foreign is not None:
            span = self._foreign = foreign.start(
                self._name, self._kind, self._stage, self._attributes, context
            )
            self._other = span.span
            return trace.set_span_in_context(span.span, context)
        return None

    def _stands_for(self) -> trace.Span | None:
        return self._other

    def _discard(self) -> None:
        """Leave as if never entered: what was called has not begun its work yet."""
        self._foreign = None
        if not self._end_ns:
            self._end_ns = NOT_RECORDING
        self.__exit__(None, None, None)

    def _finish(self, error: BaseException | None) -> None:
        """End a stage that `_start` started."""
        if self._foreign is not None:
            self._foreign.end(error)
            self._foreign = self._other = None
            return
        if error is not None:
            self._fail(error)
        self.end()

    def _exit_aside(self, aside: Aside, error: BaseException | None) -> None:
        """Leave what `_enter_aside` entered; after a second entry, what the first one left here."""
        if aside.foreign is None:
            self._token = aside.outer
            return
        leave(aside.outer, self._other, error)
        self._token = None
        self._finish(error)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; before the stage is entered, one it will start with."""
        if not self._end_ns:
            super().set_attribute(key, value)
        elif self._other is not None:
            self._other.set_attribute(str(key), snapshot(value))
        elif self._end_ns == NOT_STARTED:
            self._attributes = {**(self._attributes or {}), key: value}

    def add_event(
        self, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None
    ) -> None:
        """Add an event at `timestamp` (Unix ns), or now."""
        if self._other is None:
            super().add_event(name, attributes, timestamp)
        else:
            self._other.add_event(str(name), fields_of(attributes), unix_ns(timestamp))

    def add_link(self, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
        """Link to another span."""
        if self._other is None:
            super().add_link(context, attributes)
        else:
            self._other.add_link(context, attributes)

    def set_status(self, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
        """Set the status; OK is final."""
        if self._other is None:
            super().set_status(status, description)
        else:
            self._other.set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Mapping[str, Any] | None = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Add an `exception` event with type, message and stack trace."""
        if self._other is None:
            super().record_exception(exception, attributes, timestamp, escaped)
        else:
            self._other.record_exception(exception, attributes, timestamp, escaped)

    def update_name(self, name: str) -> None:
        """Give the span another name."""
        if self._other is None:
            super().update_name(name)
        else:
            self._other.update_name(name)

    def is_recording(self) -> bool:
        """Say whether the stage still takes attributes and events."""
        return super().is_recording() if self._other is None else self._other.is_recording()

    def get_span_context(self) -> trace.SpanContext:
        """Return the identity of the span that records."""
        return super().get_span_context() if self._other is None else self._other.get_span_context()


STAGE_NAMES: Final[dict[str, str | None]] = {
    name: name for name in (*STAGES, *(f"inference.{inner}" for inner in INFERENCE_SUBSTAGES))
}
"""Names seen and the stage they stand for; a lookup is cheaper than splitting the name each time."""

STAGE_NAMES_KEPT: Final = 1024


def remember_stage(name: str) -> str | None:
    """Return `stage_name(name)` and keep it; a service with ids in its names fills the table and no more."""
    found = stage_name(str(name))
    if len(STAGE_NAMES) < STAGE_NAMES_KEPT and isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        STAGE_NAMES[name] = found
    return found


@overload
def stage(name: Function, /) -> Function: ...


@overload
def stage(name: str, *, gpu: bool = False, attributes: Mapping[str, Any] | None = None) -> Stage: ...


def stage(name: Any, *, gpu: bool = False, attributes: Mapping[str, Any] | None = None) -> Any:  # noqa: ARG001
    """Open a stage of the current request: a context manager, or a decorator.

    A function decorated without a name gives its own.

    Args:
        name: what the request does, as the ledger will show it: one of the known stages, something dotted
            below one ("inference.prefill"), or a name of your own, which then carries no `tailscope.stage`.
        gpu: the stage launches GPU work. Accepted, and without effect in this version.
        attributes: set when the stage starts.

    """
    # A function, because calling a class with an __init__ costs 0.2 us more than this.
    opened = Stage()
    opened._name = name
    try:
        opened._stage = STAGE_NAMES[name]
    except (KeyError, TypeError):
        if is_function(name):
            return stage(label_of(name), attributes=attributes)(name)
        opened._stage = remember_stage(name)
    try:
        opened._attributes = None if attributes is None else {**attributes}
    except Exception:  # noqa: BLE001 - the host's mapping may raise whatever it likes
        opened._attributes = fields_of(attributes)
    opened._end_ns = NOT_STARTED
    return opened


class Dependency(Stage):
    """A call to something else: a CLIENT span with the peer's name."""

    __slots__ = ()

    _kind = CLIENT

    def _copy(self) -> Stage:
        attributes = self._attributes or {}
        return dependency(self._name, attributes=attributes)


@overload
def dependency(name: Function, /) -> Function: ...


@overload
def dependency(
    name: str, *, peer: str | None = None, attributes: Mapping[str, Any] | None = None
) -> Dependency: ...


def dependency(name: Any, *, peer: str | None = None, attributes: Mapping[str, Any] | None = None) -> Any:
    """Open a call to something else: a context manager, or a decorator.

    Args:
        name: what is asked for ("GET user"); keep ids out of it.
        peer: who is asked ("redis"), as `server.address` and `peer.service`.
        attributes: set when the call starts.

    """
    if not isinstance(name, str) and is_function(name):
        return dependency(label_of(name), peer=peer, attributes=attributes)(name)
    opened = Dependency()
    opened._name = name
    opened._stage = None
    given = fields_of(attributes) or {}
    opened._attributes = given if peer is None else {"server.address": peer, "peer.service": peer, **given}
    opened._end_ns = NOT_STARTED
    return opened
