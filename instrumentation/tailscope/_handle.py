"""The stage that is current, for code that did not open it.

Owns `current()`. Whatever the current span is, ours, a framework's or none at all, the caller gets something
with `set` and `event`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import trace

from tailscope._span import Span
from tailscope._values import fields_of, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping


class Handle(Protocol):
    """What can be done with the current stage."""

    def set(self, key: str, value: Any) -> None:
        """Set one attribute."""

    def event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Add an event that happens now."""


class OtherSpan:
    """A span that is not ours, with our names for what it does; a span that records nothing does nothing."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, key: str, value: Any) -> None:
        """Set one attribute."""
        self._span.set_attribute(str(key), snapshot(value))

    def event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Add an event that happens now."""
        self._span.add_event(str(name), fields_of(attributes))


def current() -> Handle:
    """Return the current stage or request; outside of any, a handle that does nothing."""
    span = trace.get_current_span()
    return span if isinstance(span, Span) else OtherSpan(span)
