"""A process whose requests are told of their surroundings: what the tests of signals share."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope import _signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tailscope._signals._collection import Signals
    from tailscope._transport import Transport

RESOURCE = {"service.name": "ranker", "service.instance.id": "one", "process.pid": 7}


@contextmanager
def signals_of(
    endpoint: str,
    *,
    connect: Callable[[], Transport] | None = None,
    resource: Mapping[str, Any] = RESOURCE,
    interval_s: float = 60.0,
) -> Iterator[Signals]:
    """Initialise Tailscope and start the signals of this process, with a metrics connection of the test's."""
    tailscope.init(service="ranker", endpoint=endpoint)
    _signals.stop(time.monotonic())
    _signals.start(connect=connect, resource=lambda: resource, version="1.2", interval_s=interval_s)
    running = _signals.RUNNING.signals
    assert running is not None
    running.arrivals.every_ns = 0  # measure every request
    try:
        yield running
    finally:
        _signals.stop(time.monotonic() + 5)


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Wait for something that another thread does; fail with `what` at the deadline."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"no {what} within {timeout_s} s"
        time.sleep(0.005)
