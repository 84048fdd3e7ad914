"""What else happens when a request starts and ends: the seam for host signals and profilers.

Owns the list of those who listen. The recording core asks `HOOKS.begin` and `HOOKS.end`, which are None while
nobody listens, so that a request then pays two attribute loads. Never lets what a listener raises reach the
host, and never gives one a request that began before it listened.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._cores import COMPILED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._span import Span

    Begin = Callable[[], Any]
    End = Callable[[Span, Any, int], None]
    Pairs = tuple[tuple[Begin, End], ...]


class Hooks:
    """Who listens to requests.

    The core calls `mark = HOOKS.begin()` on the thread that starts a request, in its context, and
    `HOOKS.end(span, mark, end_ns)` on any thread before the span is handed over: attributes and events may
    still be written. The mark is None for a request that began before anyone listened.
    """

    __slots__ = ("_lock", "_pairs", "arrivals", "begin", "end")

    begin: Begin | None
    end: End | None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pairs: Pairs = ()
        self.arrivals: Any = None
        """Who counts and measures requests in the compiled core; in the pure one it is a pair like others."""
        self.begin = self.end = None

    def register(self, begin: Begin, end: End) -> None:
        """Call `begin` and `end` for each request from now on; once for each pair."""
        with self._lock:
            if (begin, end) not in self._pairs:
                self._set((*self._pairs, (begin, end)))

    def remove(self, begin: Begin, end: End) -> None:
        """Stop calling this pair; requests in flight still end with it, unless it was the last one."""
        with self._lock:
            self._set(tuple(pair for pair in self._pairs if pair != (begin, end)))

    def _set(self, pairs: Pairs) -> None:
        self._pairs = pairs
        self.begin = beginning(pairs) if pairs else None
        self.end = ending if pairs else None
        if COMPILED is not None:
            COMPILED.set_hooks(self.begin, self.end)

    def set_arrivals(self, arrivals: Any) -> None:
        """Let the compiled core count and measure requests with `arrivals` from now on; None for nobody."""
        self.arrivals = arrivals
        COMPILED.set_arrivals(arrivals, failed)

    def after_fork(self) -> None:
        """Go on in a forked child: a lock that another thread held is held for ever."""
        self._lock = threading.Lock()


def beginning(pairs: Pairs) -> Begin:
    """Return one function that begins for all pairs; its mark holds who is to end it, and with what."""
    if len(pairs) == 1:
        ((only, end),) = pairs

        def begin_one() -> Any:
            try:
                return ((end, only()),)
            except Exception as error:  # noqa: BLE001 - a guest never breaks its host
                failed("begin", error)
                return None

        return begin_one

    def begin_all() -> Any:
        marks: list[Any] = []
        for begin, end in pairs:
            try:
                marks.append((end, begin()))
            except Exception as error:  # noqa: BLE001 - one that fails takes no other along
                failed("begin", error)
        return marks

    return begin_all


def ending(span: Span, mark: Any, end_ns: int) -> None:
    """End for everyone who began this request."""
    for end, inner in mark or ():
        try:
            end(span, inner, end_ns)
        except Exception as error:  # noqa: BLE001 - one that fails takes no other along
            failed("end", error)


def failed(where: str, error: Exception) -> None:
    """Report what a listener raised."""
    _guard.report(f"internal:hooks.{where}", f"Tailscope failed at the {where} of a request: {error!r}")


HOOKS: Final = Hooks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HOOKS.after_fork)
