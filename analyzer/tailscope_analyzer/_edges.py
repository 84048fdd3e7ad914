"""Between whom the time of a call lies, as the ledger spells it.

Owns the operation of a gap (`caller -> callee`) and of a dependency whose peer is known
(`caller -> peer: span`), and reading the callee back. Knows nothing of spans or reports.
"""

from __future__ import annotations

CATEGORIES_BETWEEN = ("gap", "dependency")
"""The categories whose time lies between two parties."""


def gap_name(caller: str, callee: str) -> str:
    """Return the operation of the time that neither side's spans explain."""
    return f"{caller} -> {callee}"


def call_name(caller: str, peer: str, span: str) -> str:
    """Return the operation of a call whose other end sends no spans."""
    return f"{caller} -> {peer}: {span}"


def callee_of(service: str, category: str, operation: str) -> str:
    """Return who was called, by a ledger row of the caller's service; empty where the row does not say."""
    prefix = gap_name(service, "")
    if category not in CATEGORIES_BETWEEN or not operation.startswith(prefix):
        return ""
    callee = operation.removeprefix(prefix)
    return callee if category == "gap" else callee.partition(": ")[0]
