"""Compilations of torch.compile inside requests, by Dynamo's own callbacks.

Owns one callback for the start and one for the end of a compilation. They run on the thread that compiles, in
the context of the request that caused it, so the event goes to exactly that request; a compilation in no
request (a batch worker's, a warm-up thread's) goes to all requests that it overlaps. Never imports torch: it
listens once the host has loaded Dynamo.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailscope import _guard
from tailscope._current import SPAN_KEY, get_current
from tailscope._local import now
from tailscope._signals._names import JIT_COMPILE_MS, JIT_TRIGGER
from tailscope._span import Span
from tailscope.conventions import JIT_COMPILE_EVENT

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE: Final = "torch._dynamo.callback"
KEPT: Final = 128
NS_PER_MS: Final = 1e6


def nobody() -> None:
    """Stand for one who wants to know."""


class Compilation(NamedTuple):
    """A compilation that no request caused."""

    start_ns: int
    end_ns: int
    trigger: str


class Compilations:
    """What Dynamo has compiled."""

    def __init__(self) -> None:
        self.count = 0
        """Compilations so far; only grows."""
        self.total_ns = 0
        self.tell: Callable[[], None] = nobody
        """Called after one that no request caused."""
        self._kept: deque[Compilation] = deque(maxlen=KEPT)
        self._start_ns = 0
        self._span: Span | None = None
        self._handler: Any = None

    def listen(self) -> bool:
        """Register with Dynamo if the host has loaded it; return whether that is done."""
        if self._handler is not None:
            return True
        handler = getattr(sys.modules.get(MODULE), "callback_handler", None)
        if handler is None:
            return False
        self._handler = handler
        with _guard.guard("dynamo"):  # private to torch
            handler.register_start_callback(self._started)
            handler.register_end_callback(self._ended)
        return True

    def stop(self) -> None:
        """Stop listening."""
        handler, self._handler = self._handler, None
        if handler is not None:
            with _guard.guard("dynamo"):
                handler.remove_start_callback(self._started)
                handler.remove_end_callback(self._ended)

    def _started(self, *_: Any) -> None:
        """Take note of the start; older versions of torch pass no argument."""
        with _guard.guard("dynamo"):
            self._start_ns = now()
            self._span = causing_span()

    def _ended(self, *arguments: Any) -> None:
        with _guard.guard("dynamo"):
            start_ns, self._start_ns = self._start_ns, 0
            span, self._span = self._span, None
            if not start_ns:
                return
            end_ns = now()
            self.count += 1
            self.total_ns += end_ns - start_ns
            trigger = getattr(
                getattr(arguments[0] if arguments else None, "callback_trigger", None), "name", ""
            )
            if span is not None and span.is_recording():
                span.event(JIT_COMPILE_EVENT, fields((end_ns - start_ns) / NS_PER_MS, trigger))
            else:
                self._kept.append(Compilation(start_ns, end_ns, trigger))
                self.tell()

    def add_events(self, span: Any, start_ns: int, end_ns: int) -> None:
        """Add an event to a request for each compilation of nobody's, of as long as the two overlap."""
        for one in list(self._kept):
            overlap_ns = min(end_ns, one.end_ns) - max(start_ns, one.start_ns)
            if overlap_ns > 0:
                at_unix_ns = min(end_ns, one.end_ns) + span._local.anchor_ns
                span.add_event(JIT_COMPILE_EVENT, fields(overlap_ns / NS_PER_MS, one.trigger), at_unix_ns)


def fields(compile_ms: float, trigger: str) -> dict[str, Any]:
    """Return the attributes of the event."""
    found: dict[str, Any] = {JIT_COMPILE_MS: round(compile_ms, 3)}
    if trigger:
        found[JIT_TRIGGER] = trigger.lower()
    return found


def causing_span() -> Span | None:
    """Return the request's span that the calling code is inside of; else the current one, if it is ours."""
    current: Any = get_current().get(SPAN_KEY)
    if not isinstance(current, Span):
        return None
    server = current._local.server
    return server if server is not None else current
