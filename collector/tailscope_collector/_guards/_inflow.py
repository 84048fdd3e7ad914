"""What calls hold before the queue can count it: messages that are on their way over gRPC.

Owns the bound. How large a message is, is known when it is there; so what is bounded is the memory of the
process. Above the bound, and for some seconds after a large message, two messages are received at a time;
calls beyond them wait for their turn, and what is on its way is cancelled, the latest first. Never looks into
a message.
"""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tailscope_collector._query._watch import private_bytes
from tailscope_collector.errors import OverloadedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ALWAYS: Final = 2
"""Messages that are received at a time however much memory is in use: two of 64 MiB, and a copy of each."""

TICK_S: Final = 0.01
"""How often memory is looked at: a core receives about 15 MiB meanwhile."""

TURN_S: Final = 1.0
"""How long a call waits for its turn before it is told to come again."""

SHORT_S: Final = 0.25
"""A message that is on its way for less is not cancelled: ordinary ones are there in milliseconds."""

CROWD: Final = 64
"""Messages on their way from which on a slow one is not waited for: half of the threads."""

CROWD_TIMEOUT_S: Final = 2.0

LARGE_BYTES: Final = 4 << 20
"""A message of more is large: what gRPC's own default refuses."""

LARGE_S: Final = 5.0
"""How long after a large message the next ones are taken for large, too."""

GROWTH_BYTES: Final = 128 << 20
"""By how much memory may grow while a message is on its way, before it is taken for large: 32 ordinary ones
on their way are 3 MiB, 24 of 60 MiB come to 2 GiB before the bound on memory is seen."""

GROWTH_S: Final = 1.0
"""How long after its beginning that growth is taken for the message's: spans that come in at full speed make
memory grow by 60 MiB a second, whoever is slow beside them."""

GIVE_BACK_S: Final = 1.0
"""Seconds between two times that freed memory is given back to the system; the allocator keeps it else."""


class Inflow:
    """Lets calls receive their messages; thread-safe. `start` it first."""

    def __init__(
        self, bound_bytes: int, *, timeout_s: float, memory_bytes: Callable[[], int] = private_bytes
    ) -> None:
        self._bound = bound_bytes
        self._timeout_s = timeout_s
        self._memory_bytes = memory_bytes
        self._reads: dict[int, tuple[float, int, Callable[[], object]]] = {}
        """When each began, how much memory was in use, and how it is cancelled; the oldest first."""
        self._large_until = 0.0
        self._number = 0
        self._closed = False
        self._given_back = 0.0
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="tailscope-inflow", daemon=True)

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching; safe to call twice."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @contextmanager
    def receiving(self, cancel: Callable[[], object]) -> Generator[None]:
        """Receive a message inside; `cancel` makes that end. Raises OverloadedError where no turn comes."""
        number = self._enter(cancel)
        try:
            yield
        finally:
            with self._change:
                self._reads.pop(number, None)
                self._change.notify_all()

    def received(self, size_bytes: int) -> None:
        """Note how large a message was."""
        if size_bytes > LARGE_BYTES:
            with self._change:
                self._large_until = time.monotonic() + LARGE_S

    def _enter(self, cancel: Callable[[], object]) -> int:
        with self._change:
            deadline = time.monotonic() + TURN_S
            while self._taking() >= ALWAYS and self._is_over():
                if not self._change.wait(deadline - time.monotonic()) or time.monotonic() >= deadline:
                    raise OverloadedError(
                        f"The collector uses over {self._bound >> 20} MiB of memory; "
                        "send the request again in a second.",
                        retry_after_s=1.0,
                    )
            self._number += 1
            self._reads[self._number] = (time.monotonic(), self._memory_bytes(), cancel)
            self._change.notify_all()
            return self._number

    def _taking(self) -> int:
        """Return how many messages take a turn: all where memory is short, else those that began lately.

        A client that is slow must not keep the turns of all others for as long as it takes.
        """
        if self._memory_bytes() > self._bound:
            return len(self._reads)
        late = time.monotonic() - TURN_S
        return sum(began > late for began, *_ in self._reads.values())

    def _is_over(self) -> bool:
        return time.monotonic() < self._large_until or self._memory_bytes() > self._bound

    def _watch(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closed or self._reads)
                if self._closed:
                    return
                ended = self._to_end()
            for cancel in ended:
                cancel()
            time.sleep(TICK_S)

    def _to_end(self) -> list[Callable[[], object]]:
        """Take out what has to end: all but the oldest two over the bound, and what takes too long."""
        numbers: list[int] = []
        if self._is_over():
            self._give_back()
        if len(self._reads) > ALWAYS:
            memory_bytes, late = self._memory_bytes(), time.monotonic() - SHORT_S
            is_over = self._is_over()
            for number in list(self._reads)[ALWAYS:]:
                began, memory_then, _ = self._reads[number]
                is_lately = began > time.monotonic() - GROWTH_S
                if is_lately and memory_bytes - memory_then > GROWTH_BYTES:
                    self._large_until = time.monotonic() + LARGE_S
                    numbers.append(number)
                elif is_over and began < late:
                    numbers.append(number)
        timeout_s = CROWD_TIMEOUT_S if len(self._reads) >= CROWD else self._timeout_s
        latest = time.monotonic() - timeout_s
        numbers += [number for number, (began, *_) in self._reads.items() if began < latest]
        return [self._reads.pop(number)[2] for number in dict.fromkeys(numbers)]

    def _give_back(self) -> None:
        if time.monotonic() - self._given_back >= GIVE_BACK_S:
            give_back()
            self._given_back = time.monotonic()


def give_back() -> None:
    """Give freed memory back to the system: after a flood glibc keeps hundreds of megabytes of it."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's; others do without
    if trim is not None:
        trim(0)
