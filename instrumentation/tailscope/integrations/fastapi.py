"""FastAPI: its own spans, completed; the time of authentication apart from the other dependencies.

Owns the replacement of `FastAPI.__call__` and of the functions that read a dependency's signature. A
dependency counts as authentication when it asks for a scheme of `fastapi.security`, or is named so. Never
makes a server span beside FastAPI's, and never changes which dependency is called, overridden or cached.
"""

from __future__ import annotations

import inspect
import re
from functools import wraps
from importlib import import_module
from typing import Any, Final

from tailscope import _guard
from tailscope._stage import stage
from tailscope.integrations._patches import Patches
from tailscope.integrations.starlette import around_app

PACKAGE: Final = "fastapi"
PATCHES: Final = Patches("fastapi")

AUTH_WORDS: Final = re.compile(
    r"(^|_)(auth|authn|authz|authenticat\w*|authoriz\w*|jwt|api_?key|permissions?|security|current_user"
    r"|(verify|check|require|validate|get)_\w*token)(_|$)"
)
CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
AUTH: Final = "auth"


def instrument() -> None:
    """Complete FastAPI's spans; older versions, which make none, get a server span."""
    PATCHES.replace(import_module(PACKAGE).FastAPI, "__call__", around_app)
    for name in ("fastapi.dependencies.utils", "fastapi.routing"):
        module = import_module(name)
        PATCHES.replace(module, "get_dependant", splitting_children)
        PATCHES.replace(module, "get_parameterless_sub_dependant", splitting)


def uninstrument() -> None:
    """Take it back; routes that exist keep the split."""
    PATCHES.restore()


def splitting_children(read: Any) -> Any:
    """Return `get_dependant` whose result times those of its dependencies that authenticate."""

    @wraps(read)
    def read_split(*arguments: Any, **named: Any) -> Any:
        dependant = read(*arguments, **named)
        with _guard.guard("fastapi"):
            for child in dependant.dependencies:
                split(child)
        return dependant

    return read_split


def splitting(read: Any) -> Any:
    """Return `get_parameterless_sub_dependant` whose result is timed if it authenticates."""

    @wraps(read)
    def read_split(*arguments: Any, **named: Any) -> Any:
        dependant = read(*arguments, **named)
        with _guard.guard("fastapi"):
            split(dependant)
        return dependant

    return read_split


def split(dependant: Any) -> None:
    """Time the call of a dependency that authenticates.

    One that yields is left out: its second half runs after the response.
    """
    call = dependant.call
    if call is None or isinstance(call, Timed) or not authenticates(dependant):
        return
    inner = inspect.unwrap(call)
    if inspect.isclass(inner):
        return
    target: Any = inner if inspect.isroutine(inner) else type(inner).__call__
    if not (inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)):
        dependant.call = Timed(call, is_async=inspect.iscoroutinefunction(target))


def authenticates(dependant: Any) -> bool:
    """Say whether a dependency is authentication: it asks for a security scheme, or is named so."""
    scheme = import_module("fastapi.security.base").SecurityBase
    call = dependant.call
    if isinstance(call, scheme):
        return False  # it reads one header; who asks for it does the work
    if any(isinstance(unwrapped(child.call), scheme) for child in dependant.dependencies):
        return True
    name = getattr(call, "__name__", None) or type(call).__name__
    return AUTH_WORDS.search(CAMEL.sub("_", name).lower()) is not None


def unwrapped(call: Any) -> Any:
    """Return what a dependency calls in the end."""
    return inspect.unwrap(call) if callable(call) else call


class Timed:
    """A dependency inside the stage `auth`; equal to the dependency itself, so that overrides find it."""

    def __init__(self, call: Any, *, is_async: bool) -> None:
        self.__wrapped__ = call
        self.__name__ = getattr(call, "__name__", type(call).__name__)
        self._is_async = is_async

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the dependency."""
        if self._is_async:
            return self._run(*arguments, **named)
        with stage(AUTH):
            return self.__wrapped__(*arguments, **named)

    async def _run(self, *arguments: Any, **named: Any) -> Any:
        with stage(AUTH):
            return await self.__wrapped__(*arguments, **named)

    def __eq__(self, other: object) -> bool:
        return bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, Timed) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)
