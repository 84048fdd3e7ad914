"""Host signals: what the machine, the container and the interpreter did while a request ran.

Owns the life of the signals in a process: `start` with the recorder, threads with the first request, `stop`,
and what a fork changes. Attributes of one request are written by its hooks, what belongs to the host becomes
OTLP metrics. Never raises into the host; where a machine hides something, that signal is absent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._signals._collection import Signals
from tailscope._signals._connection import metrics_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope._transport import Transport

__all__ = [
    "after_fork",
    "before_fork",
    "gpu_attributes",
    "metrics_connection",
    "metrics_counts",
    "resource_facts",
    "start",
    "stop",
    "wake",
]


class Running:
    """The signals of this process."""

    signals: Signals | None = None


RUNNING: Final = Running()


def start(
    *,
    connect: Callable[[], Transport] | None,
    resource: Callable[[], Mapping[str, Any]],
    version: str,
    interval_s: float,
) -> None:
    """Begin to tell requests of their surroundings, and the receiver of the host; once is enough.

    Args:
        connect: opens the connection for metrics; None where they go nowhere.
        resource: what the spans of this process carry, the same instance id too.
        version: of our instrumentation scope.
        interval_s: seconds between two readings of the metrics.

    """
    with _guard.guard("signals"):
        if RUNNING.signals is None:
            if connect is not None:
                # In a child that was forked in the middle of an import, nobody can ever import that again.
                import_module("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
            signals = RUNNING.signals = Signals(connect, resource, version=version, interval_s=interval_s)
            signals.arrivals.listen()


def wake() -> None:
    """Start the threads now: a process that records spans but serves no requests has a host too."""
    signals = RUNNING.signals
    if signals is not None:
        signals.wake()


def stop(deadline_s: float) -> None:
    """Send a last reading of the metrics, until `deadline_s` (monotonic), and end all threads."""
    with _guard.guard("signals"):
        signals, RUNNING.signals = RUNNING.signals, None
        if signals is not None:
            signals.arrivals.stop()
            signals.stop(deadline_s)


def before_fork() -> Callable[[], None] | None:
    """Let a call to the receiver end and begin none; return what ends that, to be called in the parent."""
    signals = RUNNING.signals
    exporter = signals.exporter if signals is not None else None
    return exporter.resume if exporter is not None and exporter.pause() else None


def after_fork() -> None:
    """Start anew in a forked child: nothing in flight, no threads until the first request."""
    with _guard.guard("signals"):
        signals = RUNNING.signals
        if signals is not None:
            signals.arrivals.stop()
            RUNNING.signals = None
            signals.abandon()
            start(
                connect=signals.connect,
                resource=signals.resource,
                version=signals.version,
                interval_s=signals.interval_s,
            )


def gpu_attributes(index: int = 0) -> Mapping[str, Any]:
    """Return `gpu.*` attributes of the GPU that this process numbers so, from the last 2 s; else nothing."""
    signals = RUNNING.signals
    return signals.gpus.attributes(index) if signals is not None and signals.gpus is not None else {}


def metrics_counts() -> dict[str, int]:
    """Return how many readings of the metrics were sent, and how many were dropped by cause."""
    signals = RUNNING.signals
    exporter = signals.exporter if signals is not None else None
    return {} if exporter is None else {"sent": exporter.sent, **exporter.dropped}


def resource_facts() -> dict[str, Any]:
    """Return what the host makes true of every span: CPUs, the container's quota, threads."""
    from tailscope._signals._facts import facts

    found: dict[str, Any] = {}
    with _guard.guard("facts"):
        found.update(facts())
    return found
