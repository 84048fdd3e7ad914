"""Calling a function when a module has been imported, without importing it.

Owns one finder at the head of `sys.meta_path`, there only while somebody waits. Never imports a framework,
never changes what an import returns or raises, and lets the loader of a module keep its type.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

Then = "Callable[[], object]"

_lock = threading.RLock()
_waiting: dict[str, list[Callable[[], object]]] = {}


def free_lock() -> None:
    """Take a fresh lock in a forked child; one that another thread held at the fork is held for ever."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=free_lock)


class Finder:
    """Finds nothing itself: it asks the other finders and listens to the loader that they name."""

    def __init__(self) -> None:
        self._asking = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that somebody waits for, with a loader that tells them."""
        if name not in _waiting or getattr(self._asking, "name", None) == name:
            return None
        self._asking.name = name
        try:
            spec = ask_others(self, name, path, target)
        finally:
            self._asking.name = None
        if spec is not None and spec.loader is not None:
            with _guard.guard("import"):
                listen(spec.loader, name)
        return spec


def ask_others(
    own: Finder, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """Return what the first other finder says, as the import system asks them."""
    for finder in list(sys.meta_path):
        find: Any = getattr(finder, "find_spec", None)
        if finder is own or find is None:
            continue
        spec: ModuleSpec | None = find(name, path, target)
        if spec is not None:
            return spec
    return None


def listen(loader: Any, name: str) -> None:
    """Have the loader tell when it has executed the module; an instance attribute, taken away again."""
    if isinstance(loader, type):  # built-in and frozen modules share one loader that is a class
        _guard.report("import", f"{name} is built into this Python: its integration waits in vain")
        return
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        if module.__name__ != name:  # modules of one archive share their loader
            execute(module)
            return
        if getattr(loader, "exec_module", None) is exec_module:
            del loader.exec_module
        execute(module)
        told(name)

    loader.exec_module = exec_module


class Calling(threading.local):
    """What this thread still has to call."""

    def __init__(self) -> None:
        self.calls: deque[tuple[str, Callable[[], object]]] = deque()
        self.busy = False


CALLING: Final = Calling()


def told(name: str) -> None:
    """Call everyone who waits for a module; of one that such a call imports, when the call is done.

    An instrumentation package that is half imported, because it imports its library, has no functions yet.
    """
    with _lock:
        CALLING.calls.extend((name, call) for call in _waiting.pop(name, []))
        rest()
    if CALLING.busy:
        return
    CALLING.busy = True
    try:
        while CALLING.calls:
            module, call = CALLING.calls.popleft()
            with _guard.guard(f"integration:{module}"):
                call()
    finally:
        CALLING.busy = False


def rest() -> None:
    """Take the finder away when nobody waits."""
    if not _waiting and FINDER in sys.meta_path:
        sys.meta_path.remove(FINDER)


FINDER: Final[Any] = Finder()


def when_imported(name: str, call: Callable[[], object]) -> None:
    """Call `call` once: now, if the module is there and complete, else when it has been imported."""
    with _lock:
        _waiting.setdefault(name, []).append(call)
        if name not in sys.modules:
            if FINDER not in sys.meta_path:
                sys.meta_path.insert(0, FINDER)
            return
    told(name)


def forget(name: str, call: Callable[[], object]) -> None:
    """Wait no longer."""
    with _lock:
        calls = _waiting.get(name, [])
        if call in calls:
            calls.remove(call)
        if not calls:
            _waiting.pop(name, None)
        rest()
