"""Recording in memory for the length of a `with` block, whatever the process recorded before.

Owns what it puts in the place of the process's recorder, and puts everything back. Never connects anywhere:
inside of the block `tailscope.init` changes nothing.
"""

# pyright: reportPrivateUsage=false
# The life of a recorder is the runtime's; a recording takes its place.

from __future__ import annotations

import gc
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import trace

from tailscope import _local
from tailscope._aside import ACTIVE
from tailscope._gc import PAUSES
from tailscope._hooks import HOOKS
from tailscope._recorder import RecorderLimits
from tailscope._runtime import RUNTIME, SCOPE_NAME, flush, new_recorder, own_version, shutdown
from tailscope._sender import SenderLimits
from tailscope._tracer import TracerProvider
from tailscope._transport import Outcome
from tailscope.testing._spans import RecordedSpan, decoded, with_children

if TYPE_CHECKING:
    from collections.abc import Generator

    from tailscope._recorder import Recorder
    from tailscope._settings import Settings
    from tailscope.testing._clock import Clock

FLUSH_S: Final = 30.0
"""Longest wait for what has ended to be encoded; on a busy machine it takes milliseconds."""

LIMITS: Final = RecorderLimits(
    pending_spans=1 << 20,
    interval_s=1.0,
    max_attributes=128,
    max_events=128,
    max_links=128,
    max_value_chars=4096,
)
SENDING: Final = SenderLimits(buffer_bytes=1 << 30, request_bytes=3 << 20, timeout_s=10.0)


class Memory:
    """The transport of a recording: keeps each request."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def send(self, body: bytes, timeout_s: float) -> Outcome:  # noqa: ARG002 - of the protocol
        """Keep one request."""
        self.bodies.append(bytes(body))
        return Outcome("sent")

    def close(self) -> None:
        """Keep what there is."""


class WhateverTheServiceAsksFor:
    """Settings that equal any: a service may call `tailscope.init` in a recording, without effect."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = object.__hash__


class Recording:
    """What was recorded since the block began; each question first waits for what has ended to be encoded."""

    def __init__(self, recorder: Recorder, memory: Memory) -> None:
        self._recorder = recorder
        self._memory = memory
        self._spans: list[RecordedSpan] = []

    def all(self) -> list[RecordedSpan]:
        """Return every span that has ended, by its start."""
        if not self._recorder.flush(time.monotonic() + FLUSH_S):
            raise AssertionError(f"Spans were not encoded within {FLUSH_S:g} s: {self._recorder.counts()}")
        fresh, self._memory.bodies[:] = list(self._memory.bodies), []
        self._spans.extend(span for body in fresh for span in decoded(body))
        return with_children(self._spans)

    def named(self, name: str) -> list[RecordedSpan]:
        """Return the spans of a name."""
        return [span for span in self.all() if span.name == name]

    def requests(self) -> list[RecordedSpan]:
        """Return the requests: every SERVER span."""
        return [span for span in self.all() if span.kind == "server"]

    def span(self, name: str) -> RecordedSpan:
        """Return the one span of a name; raises AssertionError where there is none, or another."""
        __tracebackhide__ = True
        return only(self.all(), name, "span")

    def request(self, name: str | None = None) -> RecordedSpan:
        """Return the one request, or the one of a name; raises AssertionError where there is not one."""
        __tracebackhide__ = True
        return only(self.requests(), name, "request")

    def clear(self) -> None:
        """Forget what was recorded so far."""
        self.all()
        self._spans.clear()


def only(spans: list[RecordedSpan], name: str | None, what: str) -> RecordedSpan:
    """Return the one span of a name."""
    __tracebackhide__ = True  # pytest then shows the line of the test
    found = [span for span in spans if name is None or span.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(sorted({repr(span.name) for span in spans})) or "none at all"
    wanted = what if name is None else f"{what} {name!r}"
    raise AssertionError(f"Want one {wanted}, found {len(found)}. Recorded were: {names}.")


@contextmanager
def recording(
    *, service: str = "test", clock: Clock | None = None, seed: int | None = 0
) -> Generator[Recording]:
    """Record in memory inside the block, and give what was recorded.

    Args:
        service: what the spans name as their `service.name`.
        clock: stands for the clock of every span; the real one without it.
        seed: of the ids, so that they are the same in each run; None for ids that are never the same.

    """
    memory = Memory()
    if clock is not None:
        _local.use_clock(clock)
    if seed is not None:
        _local.use_ids(random.Random(seed).getrandbits)  # noqa: S311 - ids that repeat, on purpose
    try:
        recorder = new_recorder()(
            connect=lambda: memory,
            resource=lambda: {"service.name": service, "service.instance.id": "test"},
            limits=LIMITS,
            sending=SENDING,
        )
        with quiet(), installed(recorder):
            yield Recording(recorder, memory)
    finally:
        if seed is not None:
            _local.use_ids(None)
        if clock is not None:
            _local.use_clock(None)


@contextmanager
def quiet() -> Generator[None]:
    """Measure nothing of the host inside the block: it is different in each run."""
    listened = PAUSES in gc.callbacks
    pairs, arrivals = HOOKS._pairs, HOOKS.arrivals
    PAUSES.remove()
    HOOKS._set(())
    if arrivals is not None:
        HOOKS.set_arrivals(None)
    try:
        yield
    finally:
        HOOKS._set(pairs)
        if arrivals is not None:
            HOOKS.set_arrivals(arrivals)
        if listened:
            PAUSES.install()


@contextmanager
def installed(recorder: Recorder) -> Generator[None]:
    """Let a recorder take the place of the process's inside the block."""
    before = (RUNTIME.mode, RUNTIME.settings, RUNTIME.recorder, RUNTIME.provider)
    recorded = (ACTIVE.scope, ACTIVE.foreign)
    provider: Any = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        # For good: OpenTelemetry takes one provider for each process. The next recording, or `init`, uses it.
        provider = TracerProvider(recorder, flush=flush, shutdown=shutdown)
        trace.set_tracer_provider(provider)
    elif isinstance(provider, TracerProvider):
        provider.record_with(recorder)
    RUNTIME.mode, RUNTIME.recorder, RUNTIME.provider = "recording", recorder, provider
    RUNTIME.settings = cast("Settings", WhateverTheServiceAsksFor())
    ACTIVE.scope, ACTIVE.foreign = recorder.scope(SCOPE_NAME, own_version()), None
    try:
        yield
    finally:
        recorder.close(time.monotonic() + FLUSH_S)
        RUNTIME.mode, RUNTIME.settings, RUNTIME.recorder, RUNTIME.provider = before
        ACTIVE.scope, ACTIVE.foreign = recorded
        if isinstance(provider, TracerProvider) and before[2] is not None:
            provider.record_with(before[2])
