"""Locust: each request of a simulated user is the CLIENT root of a trace, and says what the generator lost.

Owns the replacement of the HTTP clients' `request` and of the wait between tasks. A load generator that is
too busy wakes its users late and measures its own delay; that time is told apart from the server's. Switched
on in a locustfile, never by itself. Never changes when a user waits, or for how long.

    import tailscope
    from tailscope.integrations import locust

    tailscope.init(service="loadtest")
    locust.instrument()
"""

# pyright: reportPrivateUsage=false
# A root is started beneath nothing, whatever the greenlet's context holds.

from __future__ import annotations

import functools
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry.context.context import Context
from opentelemetry.propagate import inject
from opentelemetry.trace import StatusCode

from tailscope import _guard
from tailscope._current import attach, leave
from tailscope._stage import dependency
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[..., Any]

PACKAGE: Final = "locust"
PATCHES: Final = Patches(PACKAGE)

LATE_MS: Final = "loadgen.late_ms"
"""How much later than it asked for a user was woken: the load generator had no time for it."""
BEHIND_MS: Final = "loadgen.behind_ms"
"""By how much the task before overran the user's pace, so that this request starts later than planned."""
LAG_MS: Final = "loadgen.greenlet_lag_ms"
"""Longest delay of a heartbeat in the last second: how late greenlets of this process run."""

LOST: Final = "_tailscope_lost"
"""Attribute of a user: what its next request will say."""

BEAT_S: Final = 0.05
BEATS_KEPT: Final = 20
ERROR_STATUS: Final = 400


def instrument() -> None:
    """Record the requests of every HttpUser and FastHttpUser."""
    with _guard.guard(PACKAGE):
        package = import_module(PACKAGE)
        PATCHES.replace(import_module("locust.clients").HttpSession, "request", wrap_request)
        PATCHES.replace(import_module("locust.contrib.fasthttp").FastHttpSession, "request", wrap_request)
        tasks = import_module("locust.user.task").TaskSet
        PATCHES.replace(tasks, "wait_time", wrap_wait_time)
        PATCHES.replace(tasks, "_sleep", wrap_sleep)
        HEARTBEAT.listen(package.events)


def uninstrument() -> None:
    """Record no further requests."""
    PATCHES.restore()
    HEARTBEAT.stop()


class Heartbeat:
    """A greenlet that wants to run every 50 ms and notes how late it does."""

    def __init__(self) -> None:
        self._greenlet: Any = None
        self._late_ms: list[float] = []
        self._listening = False

    def listen(self, events: Any) -> None:
        """Beat while a test runs."""
        if not self._listening:
            self._listening = True
            events.test_start.add_listener(self.start)
            events.test_stop.add_listener(self.stop)

    def start(self, **_: Any) -> None:
        """Begin."""
        with _guard.guard(PACKAGE):
            if self._greenlet is None:
                self._greenlet = import_module("gevent").spawn(self._beat)

    def stop(self, **_: Any) -> None:
        """End."""
        with _guard.guard(PACKAGE):
            greenlet, self._greenlet = self._greenlet, None
            if greenlet is not None:
                greenlet.kill(block=False)

    def _beat(self) -> None:
        sleep: Callable[[float], None] = import_module("gevent").sleep
        while True:
            began_s = perf_counter()
            sleep(BEAT_S)
            self._late_ms.append((perf_counter() - began_s - BEAT_S) * 1e3)
            del self._late_ms[:-BEATS_KEPT]

    def lag_ms(self) -> float | None:
        """Return the longest delay of the last second; None while no test runs."""
        return max(self._late_ms, default=None)


HEARTBEAT: Final = Heartbeat()


def wrap_wait_time(wait_time: Method) -> Method:
    """Return the choice of a wait, which notes by how much a paced user has overrun."""

    @functools.wraps(wait_time)
    def call(tasks: Any) -> Any:
        with _guard.guard(PACKAGE):
            behind_ms = behind_pace_ms(tasks.user)
            if behind_ms > 0:
                lost_of(tasks.user)[BEHIND_MS] = behind_ms
        return wait_time(tasks)

    return call


def behind_pace_ms(user: Any) -> float:
    """Return by how much the last task took longer than the pace of `constant_pacing` allows."""
    function: Any = getattr(type(user), "wait_time", None)  # pyright: ignore[reportUnknownArgumentType]
    last_run_s: float = getattr(user, "_cp_last_run", 0.0)
    cells: Any = getattr(function, "__closure__", None)
    if not cells or not last_run_s:
        return 0.0
    contents = (cell.cell_contents for cell in cells)
    pace_s: Any = dict(zip(function.__code__.co_freevars, contents, strict=False)).get("wait_time")
    if not isinstance(pace_s, (int, float)):
        return 0.0
    run_s: float = perf_counter() - last_run_s - user._cp_last_wait_time
    return max(run_s - pace_s, 0.0) * 1e3


def wrap_sleep(sleep: Method) -> Method:
    """Return a user's sleep, which notes how late it was woken."""

    @functools.wraps(sleep)
    def call(tasks: Any, seconds: float) -> Any:
        began_s = perf_counter()
        result = sleep(tasks, seconds)
        with _guard.guard(PACKAGE):
            lost_of(tasks.user)[LATE_MS] = max(perf_counter() - began_s - seconds, 0.0) * 1e3
        return result

    return call


def lost_of(user: Any) -> dict[str, float]:
    """Return what the user's next request will say about the load generator."""
    lost: dict[str, float] | None = getattr(user, LOST, None)
    if lost is None:
        lost = {}
        setattr(user, LOST, lost)
    return lost


def wrap_request(request: Method) -> Method:
    """Return a client's `request` inside a CLIENT span that begins a trace and is sent along."""

    @functools.wraps(request)
    def call(session: Any, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
        span, context = opened(session, method, url, kwargs)
        if context is None:
            return request(session, method, url, *args, **kwargs)
        token = attach(context)
        error: BaseException | None = None
        try:
            with _guard.guard(PACKAGE):
                kwargs = {**kwargs, "headers": with_trace(kwargs.get("headers"))}
            answer = request(session, method, url, *args, **kwargs)
            with _guard.guard(PACKAGE):
                tell_answer(span, answer)
        except BaseException as raised:
            error = raised
            raise
        else:
            return answer
        finally:
            leave(token, span, error)
            span._finish(error)

    return call


def opened(session: Any, method: str, url: str, kwargs: dict[str, Any]) -> tuple[Any, Context | None]:
    """Return the span of a request, started beneath nothing, and its context."""
    span: Any = None
    context: Context | None = None
    with _guard.guard(PACKAGE):
        user = getattr(session, "user", None)
        base = str(getattr(session, "base_url", "") or "")
        address = urlsplit(url if "://" in url else base + url)
        attributes: dict[str, Any] = {
            "http.request.method": method.upper(),
            "url.path": address.path,
            "server.address": address.hostname or "",
            "locust.user": type(user).__name__,
        }
        if address.port is not None:
            attributes["server.port"] = address.port
        lost = getattr(user, LOST, None)
        if lost:
            attributes.update(lost)
            lost.clear()
        lag_ms = HEARTBEAT.lag_ms()
        if lag_ms is not None:
            attributes[LAG_MS] = lag_ms
        name = kwargs.get("name") or address.path
        span = dependency(f"{method.upper()} {name}", attributes=attributes)
        context = span._start(Context())
    return span, context


def with_trace(headers: Any) -> dict[str, Any]:
    """Return the headers of a request with the trace context of the current span."""
    carrier: dict[str, str] = {}
    inject(carrier)
    return {**(headers or {}), **carrier}


def tell_answer(span: Any, answer: Any) -> None:
    """Set the status that came back; 0 is a request that got no answer."""
    status = getattr(answer, "status_code", None)
    failure = getattr(answer, "error", None)
    if status:
        span.set_attribute("http.response.status_code", status)
    if status and status >= ERROR_STATUS:
        span.set_attribute("error.type", str(status))
    elif failure is not None:
        span.set_attribute("error.type", type(failure).__name__)
    else:
        return
    span.set_status(StatusCode.ERROR)
