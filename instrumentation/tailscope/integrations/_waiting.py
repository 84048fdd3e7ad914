"""Whether an `await` really waited, or only ran for long.

Owns one awaitable. A server's `send` that need not wait for its client returns without giving the event loop
back; on a busy machine even that takes milliseconds, which are not the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator


class Watched:
    """An awaitable in place of another; `waited` says afterwards whether it gave the event loop back."""

    __slots__ = ("_awaitable", "waited")

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self._awaitable = awaitable
        self.waited = False

    def __await__(self) -> Generator[Any, Any, Any]:
        """Pass everything through, in both directions."""
        steps = self._awaitable.__await__()
        try:
            item = next(steps)
            self.waited = True
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    close = getattr(steps, "close", None)
                    if close is not None:
                        close()
                    raise
                except BaseException as error:
                    throw: Any = getattr(steps, "throw", None)
                    if throw is None:
                        raise
                    item = throw(error)
                else:
                    send: Any = getattr(steps, "send", None)
                    item = next(steps) if sent is None or send is None else send(sent)
        except StopIteration as stop:
            return stop.value
