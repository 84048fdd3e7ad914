"""`stage(name, gpu=True)`: a stage whose span waits for its GPU time after it has ended.

Owns when events are recorded and who ends the span. Without a device in use it is a plain stage. Never delays
the host for a device: a stage ends when its block ends, and is handed over when the device has passed it.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from tailscope import _guard
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tailscope._gpu._timing import Timing
from tailscope._local import now
from tailscope._record import NOT_STARTED
from tailscope._stage import STAGE_NAMES, Stage, remember_stage
from tailscope._values import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from opentelemetry.context.context import Context

    from tailscope._gpu._timing import Finish


class HostStage(Stage):
    """A plain stage; each call of a function that it decorates looks for a device again."""

    __slots__ = ()

    def _copy(self) -> Stage:
        return open_stage(self._name, self._attributes)


class GpuStage(Stage):
    """A stage between two events of the stream that is current when it starts."""

    _timing: Timing | None = None
    _entered_again = 0

    def _copy(self) -> Stage:
        return open_stage(self._name, self._attributes)

    def __enter__(self) -> Self:
        first = self._end_ns == NOT_STARTED
        super().__enter__()
        if not first:
            self._entered_again += 1
        elif self._timing is None and not self._end_ns:
            self._timing = begin_timing()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._entered_again:
            self._entered_again -= 1
        elif self._timing is not None and self._foreign is None:
            self._stop(self._timing, exc)
        super().__exit__(exc_type, exc, tb)

    def _start(self, context: Context) -> Context | None:
        body = super()._start(context)
        if not self._end_ns or self._foreign is not None:
            self._timing = begin_timing()
        return body

    def _finish(self, error: BaseException | None) -> None:
        if self._timing is not None:
            self._stop(self._timing, error)
        super()._finish(error)

    def _stop(self, timing: Timing, error: BaseException | None) -> None:
        """End the stage and leave it to the resolver; what is called next finds it ended."""
        self._timing = None
        try:
            self._leave_to_resolver(timing, error)
        except Exception as failure:  # noqa: BLE001 - a guest never breaks its host
            _guard.report("internal:gpu", f"Tailscope failed to time a stage: {failure!r}", exc_info=True)

    def _leave_to_resolver(self, timing: Timing, error: BaseException | None) -> None:
        foreign = self._foreign
        if self._end_ns and foreign is None:  # ended by hand, or what was called has not begun its work yet
            timing.cancel()
            return
        if not timing.stop():
            return
        if foreign is not None:
            timing.foreign, timing.error = foreign, error
            self._foreign = self._other = None
        else:
            if error is not None:
                self._fail(error)
            self._end_ns = timing.ended_ns
            timing.span = self
        HOLDER.resolver.hold(timing)


def begin() -> Timing | None:
    """Begin to time GPU work that several spans share, a batch's; None where there is no device in use."""
    return begin_timing() if REGISTRY.find() is not None else None


def end(timing: Timing | None, finish: Finish) -> None:
    """End what `begin` began and have `finish` called with the attributes, later, by another thread.

    At once, and with none, where there is no GPU time.
    """
    if timing is None or not timing.stop():
        finish({})
        return
    timing.finish = finish
    HOLDER.resolver.hold(timing)


class Kinds:
    """What `open_stage` makes; the setting `nvtx` has others made, which also open a range."""

    __slots__ = ("gpu", "host")

    def __init__(self) -> None:
        self.host: type[Stage] = HostStage
        self.gpu: type[Stage] = GpuStage


KINDS: Final = Kinds()


def begin_timing() -> Timing | None:
    """Record the first event of a stage on the current stream; None where there can be no GPU time."""
    backend = REGISTRY.found
    if backend is None:
        return None
    timing = None
    try:
        if backend.is_capturing():
            return None
        lane = backend.current()
        unit = HOLDER.resolver.devices.get(backend, lane[0])
        pair = unit.pool.take()
        if pair is None:
            _guard.report("gpu:no_event", "No GPU event was free: some stages go without GPU time")
            return None
        timing = Timing(unit, lane, pair, now())
        backend.record(pair[0], lane[2])
    except Exception as error:  # noqa: BLE001 - an error of earlier work surfaces in any call to CUDA
        _guard.report("gpu:record", f"{backend.name} could not begin to time a stage: {error!r}")
        if timing is not None:
            timing.unit.pool.lose()
        return None
    return timing


def open_stage(name: Any, attributes: Mapping[str, Any] | None = None) -> Stage:
    """Return a stage that has not started: timed on the device in use, or a plain one where there is none."""
    in_use = REGISTRY.found is not None or REGISTRY.find() is not None
    opened = KINDS.gpu() if in_use else KINDS.host()
    opened._name = name
    try:
        opened._stage = STAGE_NAMES[name]
    except (KeyError, TypeError):
        opened._stage = remember_stage(name)
    opened._attributes = None if attributes is None else fields_of(attributes)
    opened._end_ns = NOT_STARTED
    return opened
