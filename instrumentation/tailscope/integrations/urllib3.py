"""urllib3, and requests upon it: connecting, TLS and waiting apart.

Owns the replacement of a pool's `urlopen` and of a connection's `_new_conn`, `connect` and `getresponse`. The
span of the call is made by `opentelemetry-instrumentation-requests` or `-urllib3`, where installed.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope.integrations._connecting import new_call
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.integrations._connecting import Call

PACKAGE: Final = "urllib3"
PATCHES: Final = Patches("urllib3")

CALL: Final[ContextVar[Call | None]] = ContextVar("tailscope.urllib3", default=None)
"""The call under way; urllib3 connects deep inside of it."""


def instrument() -> None:
    """Tell the parts of each call from now on."""
    connection = import_module("urllib3.connection")
    PATCHES.replace(import_module("urllib3.connectionpool").HTTPConnectionPool, "urlopen", telling)
    PATCHES.replace(connection.HTTPConnection, "_new_conn", step("connect"))
    PATCHES.replace(connection.HTTPConnection, "getresponse", step("wait"))
    PATCHES.replace(connection.HTTPSConnection, "connect", telling_tls)


def uninstrument() -> None:
    """Take it back."""
    PATCHES.restore()


def telling(urlopen: Any) -> Any:
    """Return `urlopen` whose steps are told; a retry or a redirect inside of it is the same call."""

    @wraps(urlopen)
    def urlopen_told(self: Any, *arguments: Any, **named: Any) -> Any:
        call = new_call() if CALL.get() is None else None
        if call is None:
            return urlopen(self, *arguments, **named)
        token = CALL.set(call)
        try:
            return urlopen(self, *arguments, **named)
        finally:
            CALL.reset(token)
            call.describe()

    return urlopen_told


def step(name: str) -> Callable[[Any], Any]:
    """Return what makes of a method one that is a step of the call."""

    def wrap(method: Any) -> Any:
        @wraps(method)
        def method_told(self: Any, *arguments: Any, **named: Any) -> Any:
            call = CALL.get()
            if call is None:
                return method(self, *arguments, **named)
            call.begin(name)
            try:
                result = method(self, *arguments, **named)
            except BaseException as error:
                call.finish(name, error)
                raise
            call.finish(name)
            if name == "connect":
                call.begin("tls")  # nothing comes of it where no TLS follows
            return result

        return method_told

    return wrap


def telling_tls(connect: Any) -> Any:
    """Return `HTTPSConnection.connect`: what follows the TCP connection is TLS."""

    @wraps(connect)
    def connect_told(self: Any) -> None:
        call = CALL.get()
        try:
            connect(self)
        except BaseException as error:
            if call is not None:
                call.finish("tls", error)
            raise
        if call is not None:
            call.finish("tls")

    return connect_told
