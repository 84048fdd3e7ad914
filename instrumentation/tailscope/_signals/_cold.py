"""Which requests were cold: the process had not yet finished one like them.

Owns the rule. A request is cold if it began before any request with its operation and its `model.version` had
ended in this process. A health check that comes first so does not hide the first prediction, and all requests
that arrive while the first is still warming up are cold with it. Operations are told apart as long as there
are at most MAX_OPERATIONS: a service with ids in its span names has more, and then only versions count.
"""

from __future__ import annotations

from typing import Any, Final

MAX_OPERATIONS: Final = 64
MAX_VERSIONS: Final = 256


class ColdStarts:
    """When the first request of each kind ended."""

    def __init__(self, known: dict[str, int] | None = None) -> None:
        self._known = {} if known is None else known
        """Of operations without a version, for those who need not ask."""
        self._ended_ns: dict[tuple[str | None, Any], int] = {}
        self._operations: set[str] = set()
        self._crowded = False

    def ended(self, operation: str, version: Any, start_ns: int, end_ns: int) -> bool:
        """Take note that a request ended; return whether it was cold.

        Args:
            operation: the span's name.
            version: its `model.version`, or None.
            start_ns: monotonic, as `end_ns`.
            end_ns: when it ended.

        """
        key = (None if self._crowded else operation, version)
        try:
            first_ns = self._ended_ns.get(key)
        except TypeError:  # a version that cannot be hashed is no version
            return False
        return start_ns < first_ns if first_ns is not None else self._first(key, operation, end_ns)

    def _first(self, key: tuple[str | None, Any], operation: str, end_ns: int) -> bool:
        """Remember the first request of a kind."""
        if len(self._ended_ns) >= MAX_VERSIONS:
            return False
        self._operations.add(operation)
        if len(self._operations) > MAX_OPERATIONS and not self._crowded:
            self._crowded = True
            merged: dict[tuple[str | None, Any], int] = {}
            for (_, version), ended_ns in self._ended_ns.items():
                merged[None, version] = min(ended_ns, merged.get((None, version), ended_ns))
            self._ended_ns = merged
            key = (None, key[1])
            if key in merged:
                return False
        self._ended_ns[key] = end_ns
        if key[1] is None and len(self._known) <= MAX_OPERATIONS:
            self._known[operation] = end_ns
        return True
