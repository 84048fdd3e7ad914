"""Stages: the spans of our own API, each its own context manager and decorator.

Owns `stage` and `dependency` and what they share with `request`: the fast way in and out of a stage beneath
one of ours. Every other way is in `_aside`. `Stage` is the compiled core's class where that was built. Never
raises into the host.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from opentelemetry.context.context import Context

from tailscope import _aside
from tailscope._aside import ACTIVE, Aside
from tailscope._cores import COMPILED
from tailscope._current import LEFT_ELSEWHERE, SPAN_KEY, attach, get_current, leave, reset
from tailscope._decorate import is_function, label_of
from tailscope._local import new_bits, now
from tailscope._record import CLIENT, INTERNAL, NOT_STARTED, RECORDING
from tailscope._span import PureSpan
from tailscope._values import CHANGING, fields_of, snapshot
from tailscope.conventions import INFERENCE_SUBSTAGES, STAGE, STAGES

if TYPE_CHECKING:
    from contextvars import Token
    from types import TracebackType

    from opentelemetry import trace

    from tailscope._foreign import ForeignSpan

Function = TypeVar("Function", bound=Callable[..., Any])

KNOWN_STAGES: Final = frozenset(STAGES)


def stage_name(name: str) -> str | None:
    """Return what `tailscope.stage` says for a name: a known stage or one dotted below, else None."""
    return name if name.partition(".")[0] in KNOWN_STAGES else None


class PureStage(PureSpan):
    """One stage of a request: `with stage("inference") as s`, `async with`, or a decorator."""

    __slots__ = ("_token",)

    _kind = INTERNAL
    _foreign: ForeignSpan | None = None
    _other: trace.Span | None = None
    """The span that this stage stands for, if it is another's: a foreign SDK's, a framework's server span."""
    _token: Token[Context] | Aside | None

    _enter_aside = _aside.enter_aside
    _exit_aside = _aside.exit_aside
    _start = _aside.start
    _finish = _aside.finish
    _discard = _aside.discard
    __call__ = _aside.decorate
    __aenter__ = _aside.aenter
    __aexit__ = _aside.aexit
    add_event = _aside.add_event
    event = _aside.add_event
    add_link = _aside.add_link
    set_status = _aside.set_status
    record_exception = _aside.record_exception
    update_name = _aside.update_name
    is_recording = _aside.is_recording
    get_span_context = _aside.get_span_context

    def __enter__(self) -> Self:
        scope = ACTIVE.fast
        if scope is None or self._end_ns != NOT_STARTED:
            return self._enter_aside()  # type: ignore[return-value]
        context = get_current()
        parent: Any = context.get(SPAN_KEY)
        try:
            self._local, self._parent_id = parent._local, parent._id
        except AttributeError:
            return self._enter_aside()  # type: ignore[return-value]
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
        end_ns = now()
        if not self._end_ns:  # no call from here to the next line, or two threads could both end it
            self._end_ns = end_ns
            scope = self._scope
            if len(scope.pending) < scope.room and not self._local.dropped:
                scope.pending.append(self)
            else:
                scope.full(self)

    def _copy(self) -> Stage:
        """Return a fresh stage like this one, for one call of a decorated function."""
        return stage(self._name, attributes=self._attributes)

    def _stands_for(self) -> trace.Span | None:
        return self._other

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; before the stage is entered, one it will start with."""
        if not self._end_ns:
            super().set_attribute(key, value)
        else:
            _aside.set_aside(self, key, value)


if TYPE_CHECKING or COMPILED is None:  # noqa: SIM108 - a type alias
    Stage = PureStage
else:
    Stage = COMPILED.Stage


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


def stage(name: Any, *, gpu: bool = False, attributes: Mapping[str, Any] | None = None) -> Any:
    """Open a stage of the current request: a context manager, or a decorator.

    A function decorated without a name gives its own.

    Args:
        name: what the request does, as the ledger will show it: one of the known stages, something dotted
            below one ("inference.prefill"), or a name of your own, which then carries no `tailscope.stage`.
        gpu: the stage launches GPU work, whose time is measured by events on the current stream and resolved
            later; without a GPU it is a plain stage.
        attributes: set when the stage starts.

    """
    if gpu and isinstance(name, str):
        return (OPENING.gpu or load_gpu())(name, attributes)
    # A function, because calling a class with an __init__ costs 0.2 us more than this.
    opened = OPENING.kind()
    opened._name = name
    try:
        opened._stage = STAGE_NAMES[name]
    except (KeyError, TypeError):
        if is_function(name):
            return stage(label_of(name), gpu=gpu, attributes=attributes)(name)
        opened._stage = remember_stage(name)
    try:
        opened._attributes = None if attributes is None else {**attributes}
    except Exception:  # noqa: BLE001 - the host's mapping may raise whatever it likes
        opened._attributes = fields_of(attributes)
    opened._end_ns = NOT_STARTED
    return opened


class Opening:
    """What `stage` makes: plain stages, or such as also open an NVTX range; GPU stages once loaded."""

    def __init__(self) -> None:
        self.kind: type[Stage] = Stage
        self.gpu: Callable[[str, Mapping[str, Any] | None], Stage] | None = None


OPENING: Final = Opening()


def make_stages_of(kind: type[Stage] | None) -> None:
    """Make stages of another class from now on; None for the plain one."""
    OPENING.kind = kind or Stage
    if COMPILED is not None:
        COMPILED.set_plain_stages(OPENING.kind is Stage)


def load_gpu() -> Callable[[str, Mapping[str, Any] | None], Stage]:
    """Return what opens a stage that measures the GPU, or a plain one where there is none."""
    from tailscope import _gpu

    OPENING.gpu = _gpu.open_stage
    return _gpu.open_stage


def copy_dependency(self: Stage) -> Stage:
    """Return a fresh dependency like this one, for one call of a decorated function."""
    return dependency(self._name, attributes=self._attributes or {})


class PureDependency(PureStage):
    """A call to something else: a CLIENT span with the peer's name."""

    __slots__ = ()

    _kind = CLIENT
    _copy = copy_dependency


if TYPE_CHECKING or COMPILED is None:  # noqa: SIM108 - a type alias
    Dependency = PureDependency
else:
    Dependency = COMPILED.Dependency


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


if not TYPE_CHECKING and COMPILED is not None:
    COMPILED.bind(
        aside=_aside,
        aside_type=Aside,
        stage=stage,
        stage_names=STAGE_NAMES,
        stage_attribute=STAGE,
        copy_dependency=copy_dependency,
        changing=CHANGING,
        snapshot=snapshot,
    )
    stage = COMPILED.stage
