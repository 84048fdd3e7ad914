"""The life of Tailscope in a process: `init`, `flush`, `shutdown`, `stats`, and what a fork changes.

Owns the one recorder of the process and the registration of our provider with OpenTelemetry. Never replaces a
provider that the service has set, never configures logging, and never raises into the host.
"""

from __future__ import annotations

import atexit
import os
import platform
import socket
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from tailscope import _guard, _signals
from tailscope._aside import ACTIVE
from tailscope._cores import COMPILED
from tailscope._foreign import ForeignTracer
from tailscope._gc import PAUSES
from tailscope._plugged import sampler_from_environment
from tailscope._recorder import Recorder, RecorderLimits
from tailscope._sender import SenderLimits
from tailscope._settings import Settings, resolve
from tailscope._stage import make_stages_of
from tailscope._tracer import TracerProvider
from tailscope._transport import open_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SCOPE_NAME: Final = "tailscope"
SHUTDOWN_S: Final = 2.0
"""Longest that the end of the process waits for a collector."""

REQUEST_BYTES: Final = 3 << 20
"""Largest request. Collectors refuse more than 4 MiB by default, and lose the whole request."""


@dataclass(frozen=True, slots=True)
class Stats:
    """What became of the spans of this process."""

    mode: str
    """`recording`, `sdk` (the service's own provider records), `disabled`, `closed` or `off` (no `init`)."""
    recorded: int
    sent: int
    pending: int
    pending_bytes: int
    dropped: dict[str, int]
    """Spans lost, by cause: `buffer_full`, `shutdown`, `too_large`, `encode`, `rejected`, `refused:CODE`."""
    truncated_values: int
    errors: dict[str, int]
    """Failures by cause, for example `export:UNAVAILABLE`: attempts, not spans."""
    dropped_requests: int = 0
    """Requests of which spans were lost for want of room; nearly all of them are dropped whole."""
    core: str = "pure" if COMPILED is None else "compiled"
    """Which recording core runs."""


class Runtime:
    """The state of Tailscope in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mode = "off"
        self.settings: Settings | None = None
        self.recorder: Recorder | None = None
        self.provider: trace.TracerProvider | None = None
        self.resource: tuple[int, Mapping[str, Any]] = (0, {})
        """Of which process, and what is true of all its spans and metrics."""


RUNTIME: Final = Runtime()


def init(
    *,
    service: str | None = None,
    endpoint: str | None = None,
    protocol: str | None = None,
    headers: Mapping[str, str] | None = None,
    resource_attributes: Mapping[str, Any] | None = None,
    compression: str | None = None,
    certificate: str | None = None,
    client_certificate: str | None = None,
    client_key: str | None = None,
    timeout_s: float | None = None,
    flush_interval_s: float | None = None,
    buffer_bytes: int | None = None,
    buffer_spans: int | None = None,
    max_attributes: int | None = None,
    max_value_chars: int | None = None,
    max_events: int | None = None,
    max_links: int | None = None,
    host_signals: bool | None = None,
    metrics_interval_s: float | None = None,
    nvtx: bool | None = None,
    disabled: bool | None = None,
    sampler: Any = None,
    span_processors: Iterable[Any] = (),
) -> None:
    """Start recording; everything is optional: argument, then TAILSCOPE_*, then OTEL_*, then the default.

    A second call changes nothing, and says so once if it asks for something else. If the service has set an
    OpenTelemetry SDK provider before, that one records our stages, as it is configured.

    Every setting is in the table of docs/instrumentation.md. Beside them, `sampler` is a sampler of the
    OpenTelemetry SDK (without one, what OTEL_TRACES_SAMPLER names), and `span_processors` are span processors
    of the SDK, which see every span at their own price.
    """
    arguments = {
        name: value for name, value in locals().items() if name not in {"sampler", "span_processors"}
    }
    with _guard.guard("init"), RUNTIME.lock:
        settings = resolve(arguments, os.environ)
        if RUNTIME.settings is not None and RUNTIME.mode != "closed":
            if settings != RUNTIME.settings:
                _guard.report(
                    "init_again", "tailscope.init was called before with other settings; those stay"
                )
            return
        RUNTIME.settings = settings
        start(settings, sampler, tuple(span_processors))


def start(settings: Settings, sampler: Any, processors: tuple[Any, ...]) -> None:
    """Begin to record with these settings; the caller holds the lock."""
    if settings.disabled:
        RUNTIME.mode = "disabled"
        return
    current = trace.get_tracer_provider()
    if not isinstance(current, (trace.ProxyTracerProvider, TracerProvider)):
        ACTIVE.foreign = ForeignTracer(current.get_tracer(SCOPE_NAME, own_version()))
        RUNTIME.mode, RUNTIME.provider = "sdk", current
        atexit.register(shutdown_at_end)
        return
    preload(settings)
    RUNTIME.resource = (0, {})
    recorder = RUNTIME.recorder = new_recorder()(
        connect=lambda: open_transport(settings.target),
        resource=lambda: process_resource(settings),
        limits=RecorderLimits(
            pending_spans=settings.buffer_spans,
            interval_s=settings.flush_interval_s,
            max_attributes=settings.max_attributes,
            max_events=settings.max_events,
            max_links=settings.max_links,
            max_value_chars=settings.max_value_chars,
        ),
        sending=SenderLimits(settings.buffer_bytes, REQUEST_BYTES, settings.timeout_s),
        sampler=sampler if sampler is not None else sampler_from_environment(),
    )
    for processor in processors:
        recorder.plug(processor)
    if isinstance(current, TracerProvider):  # from before a shutdown; OpenTelemetry takes no second one
        RUNTIME.provider = current
        current.record_with(recorder)
    else:
        RUNTIME.provider = TracerProvider(recorder, flush=flush, shutdown=shutdown)
        trace.set_tracer_provider(RUNTIME.provider)
    ACTIVE.scope = recorder.scope(SCOPE_NAME, own_version())
    RUNTIME.mode = "recording"
    if settings.nvtx:
        from tailscope import _nvtx

        make_stages_of(_nvtx.enable())
    PAUSES.install()
    if settings.host_signals:
        _signals.start(
            connect=_signals.metrics_connection(settings.target, os.environ),
            resource=lambda: process_resource(settings),
            version=own_version(),
            interval_s=settings.metrics_interval_s,
        )
    atexit.register(shutdown_at_end)
    if is_started_by_another():
        flush_when_child_ends(RUNTIME)


def yield_to(provider: trace.TracerProvider) -> bool:
    """Let a provider that the service sets after our `init` record from now on; False where that cannot be.

    For `tailscope run`, whose `init` comes before any line of the service. OpenTelemetry takes one provider
    for each process: without this, the service's own exporter would get nothing.
    """
    with _guard.guard("yield"), RUNTIME.lock:
        ours, recorder = RUNTIME.provider, RUNTIME.recorder
        if recorder is None or RUNTIME.mode != "recording" or isinstance(provider, TracerProvider):
            return False
        if not isinstance(ours, TracerProvider) or trace.get_tracer_provider() is not ours:
            return False
        ours.hand_over(provider)
        trace._TRACER_PROVIDER = provider  # pyright: ignore[reportPrivateUsage]
        ACTIVE.foreign = ForeignTracer(provider.get_tracer(SCOPE_NAME, own_version()))
        ACTIVE.scope = None
        RUNTIME.mode, RUNTIME.provider, RUNTIME.recorder = "sdk", provider, None
        PAUSES.remove()
        threading.Thread(target=end_recording, args=(recorder,), name="tailscope-end", daemon=True).start()
    return RUNTIME.provider is provider


def end_recording(recorder: Recorder) -> None:
    """Send what a recorder still has, and stop it."""
    with _guard.guard("yield"):
        _signals.stop(time.monotonic())
        recorder.close(time.monotonic() + SHUTDOWN_S)


def new_recorder() -> type[Recorder]:
    """Return the recorder of the core that runs."""
    if COMPILED is None:
        return Recorder
    from tailscope._recorder_compiled import CompiledRecorder

    return CompiledRecorder


def preload(settings: Settings) -> None:
    """Import now what the first request would otherwise wait for."""
    import tailscope

    for name in tailscope.__all__:
        getattr(tailscope, name)
    import_module("tailscope._gpu")
    if settings.target.protocol == "grpc":
        import_module("grpc")  # 60 ms


def process_resource(settings: Settings) -> Mapping[str, Any]:
    """Return the resource of this process, the same for its spans and its metrics."""
    if RUNTIME.resource[0] != os.getpid():
        RUNTIME.resource = (os.getpid(), resource_of(settings))
    return RUNTIME.resource[1]


def resource_of(settings: Settings) -> dict[str, Any]:
    """Return what is true of every span of this process; a forked child has another instance id."""
    given = dict(settings.resource_attributes)
    instance = given.pop("service.instance.id", None)
    if instance is None:
        instance = str(uuid.uuid4())
    elif os.getpid() != INIT_PID or is_started_by_another():
        instance = f"{instance}-{os.getpid()}"
    return {
        "telemetry.sdk.name": "tailscope",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": own_version(),
        "host.name": socket.gethostname(),
        "process.pid": os.getpid(),
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
        **_signals.resource_facts(),
        **given,
        "service.name": settings.service,
        "service.instance.id": instance,
    }


INIT_PID: Final = os.getpid()


def is_started_by_another() -> bool:
    """Say whether `multiprocessing` has started this process, as uvicorn does its workers."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def own_version() -> str:
    """Return the version of the installed distribution."""
    try:
        return version("tailscope")
    except PackageNotFoundError:
        return "0"


def flush(timeout_s: float = 2.0) -> bool:
    """Send every span that has ended; return whether all of them left within `timeout_s` seconds."""
    done = False
    with _guard.guard("flush"):
        if RUNTIME.recorder is None and RUNTIME.mode != "sdk":
            return True
        if RUNTIME.recorder is not None:
            deadline_s = time.monotonic() + timeout_s
            settled = settle(deadline_s - timeout_s / 2)
            done = RUNTIME.recorder.flush(deadline_s) and settled
            for processor in processors_of(RUNTIME.recorder):
                remaining_s = max(0.0, deadline_s - time.monotonic())
                done = processor.force_flush(int(remaining_s * 1000)) is not False and done
        else:
            settle(time.monotonic() + timeout_s / 2)
            force_flush = getattr(RUNTIME.provider, "force_flush", None)
            done = bool(force_flush(int(timeout_s * 1000))) if force_flush else True
    return done


class Ending:
    """How long the end of this process has waited for the collector so far, in vain."""

    def __init__(self) -> None:
        self._waited_s = 0.0
        self._since_s = 0.0

    def left_s(self) -> float:
        """Return for how many seconds it may still wait."""
        if time.monotonic() - self._since_s > FORGET_S:
            self._waited_s = 0.0
        return max(0.0, SHUTDOWN_S - self._waited_s)

    def waited(self, seconds: float) -> None:
        """Take note of a wait in vain."""
        self._since_s = time.monotonic()
        self._waited_s += seconds


FORGET_S: Final = 10.0
"""A server that stopped so long ago was not the end of the process."""

ENDING: Final = Ending()


def flush_at_end() -> None:
    """Flush what may be the end of the process: all these and `shutdown` together wait for SHUTDOWN_S."""
    started_s = time.monotonic()
    if not flush(ENDING.left_s()):
        ENDING.waited(time.monotonic() - started_s)


def shutdown_at_end() -> None:
    """Shut down in what is left of SHUTDOWN_S."""
    shutdown(ENDING.left_s())


def shutdown(timeout_s: float = SHUTDOWN_S) -> None:
    """Send what can be sent within `timeout_s` seconds and stop; runs by itself when the process ends.

    Spans that come later are counted as dropped. A provider of the service's own is left alone.
    """
    with _guard.guard("shutdown"):
        PAUSES.remove()
        recorder = RUNTIME.recorder
        deadline_s = time.monotonic() + timeout_s
        # A device that hangs leaves half of the time to what has ended.
        settle(deadline_s - timeout_s / 2, close=True)
        if recorder is not None and RUNTIME.mode != "closed":
            make_stages_of(None)
            recorder.close(deadline_s)
            RUNTIME.mode = "closed"
            for processor in processors_of(recorder):
                processor.shutdown()
            _signals.stop(deadline_s)


def processors_of(recorder: Recorder) -> tuple[Any, ...]:
    """Return the SDK's span processors that the service has plugged in."""
    return () if recorder.plugs is None else recorder.plugs.processors


def settle(deadline_s: float, *, close: bool = False) -> bool:
    """Let stages that wait for their GPU time have it until the deadline; False where some still wait."""
    gpu = sys.modules.get("tailscope._gpu")
    return gpu is None or bool(gpu.settle(deadline_s, close=close))


def stats() -> Stats:
    """Return what was recorded, sent, dropped and is waiting, and the failures by cause."""
    recorder = RUNTIME.recorder
    if recorder is None:
        return Stats(RUNTIME.mode, 0, 0, 0, 0, {}, 0, _guard.errors())
    counts = recorder.counts()
    return Stats(
        mode=RUNTIME.mode,
        recorded=counts.recorded,
        sent=counts.sent,
        pending=counts.pending,
        pending_bytes=counts.pending_bytes,
        dropped=counts.dropped,
        truncated_values=counts.truncated_values,
        errors=_guard.errors(),
        dropped_requests=counts.dropped_requests,
    )


class Forking(threading.local):
    """What lets the sender go on after the fork that this thread makes."""

    resume: Callable[[], None] | None = None
    resume_metrics: Callable[[], None] | None = None


FORKING: Final = Forking()


def before_fork() -> None:
    """Let a call to the collector end."""
    with _guard.guard("fork"):
        FORKING.resume = RUNTIME.recorder.before_fork() if RUNTIME.recorder is not None else None
        FORKING.resume_metrics = _signals.before_fork()


def after_fork_in_parent() -> None:
    """Go on sending."""
    resume, FORKING.resume = FORKING.resume, None
    if resume is not None:
        resume()
    resume, FORKING.resume_metrics = FORKING.resume_metrics, None
    if resume is not None:
        resume()


def after_fork_in_child() -> None:
    """Start anew in a forked child: own instance id, empty buffer, threads with the first span."""
    FORKING.resume = FORKING.resume_metrics = None
    RUNTIME.lock = threading.Lock()
    with _guard.guard("fork"):
        recorder = RUNTIME.recorder
        if recorder is None or RUNTIME.mode != "recording":
            return
        recorder.after_fork()
        _signals.after_fork()
        ACTIVE.scope = recorder.scope(SCOPE_NAME, own_version())
        if isinstance(RUNTIME.provider, TracerProvider):
            RUNTIME.provider.after_fork()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:
            # A child of multiprocessing ends with os._exit, which runs finalisers of multiprocessing and no
            # atexit.
            processes.register_after_fork(RUNTIME, flush_when_child_ends)


def flush_when_child_ends(_: Runtime) -> None:
    """Let the end of a multiprocessing child flush; finalisers registered before its start are forgotten."""
    import_module("multiprocessing.util").Finalize(None, shutdown_at_end, exitpriority=100)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=before_fork, after_in_parent=after_fork_in_parent, after_in_child=after_fork_in_child
    )
