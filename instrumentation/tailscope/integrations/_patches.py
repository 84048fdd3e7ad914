"""Functions and methods of other people's modules, replaced and put back.

Owns the bookkeeping: each replacement once, each put back only while it is still ours. Never imports the
library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from tailscope import _guard

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

MARK: Final = "_tailscope_original"
"""Attribute of a replacement: what it calls."""


def own_of(owner: Any) -> dict[str, Any]:
    """Return what a class or module has itself, without what it inherits."""
    found: Any = owner.__dict__
    return cast("dict[str, Any]", found)


MISSING: Final = object()
"""What a class that inherits a method has of its own."""


class Patches:
    """What one integration has replaced."""

    def __init__(self, integration: str) -> None:
        self._integration = integration
        self._made: list[tuple[Any, str, Any, Any]] = []

    def replace(self, owner: Any, name: str, wrap: Wrap) -> None:
        """Replace `owner.name` by what `wrap` makes of it; nothing where it is missing or already ours."""
        with _guard.guard(f"{self._integration}.{name}"):
            current = getattr(owner, name, None)
            if current is None:
                where = getattr(owner, "__name__", owner)
                _guard.report(f"{self._integration}:missing", f"{where} has no {name}: not recorded there")
                return
            if hasattr(current, MARK):
                return
            own = own_of(owner)
            before = own.get(name, MISSING)
            replacement = wrap(current)
            setattr(replacement, MARK, current)
            setattr(owner, name, replacement)
            self._made.append((owner, name, before, replacement))

    def restore(self) -> None:
        """Put back everything that is still ours; what somebody has wrapped since stays."""
        while self._made:
            owner, name, before, replacement = self._made.pop()
            with _guard.guard(f"{self._integration}.{name}"):
                own = own_of(owner)
                if own.get(name) is not replacement:
                    continue
                if before is MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
