"""What to say when no request matches: which services or operations there are instead.

Owns two bounded questions to the source.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._names import readable
from tailscope_analyzer._source import Selection

if TYPE_CHECKING:
    from tailscope_analyzer._source import Source

MOST_NAMES: Final = 10


def why_none(source: Source, selection: Selection) -> str:
    """Return a sentence about the name that no request has; empty where that is not the reason."""
    by_service = Selection(service=selection.service)
    if selection.service is not None and not _names(source, "service", by_service):
        there = _listed(_names(source, "service", Selection()))
        return f"No requests of service {readable(selection.service)!r}. Services here: {there}."
    by_operation = replace(by_service, operation=selection.operation)
    if selection.operation is not None and not _names(source, "operation", by_operation):
        of = f" of {readable(selection.service)}" if selection.service is not None else ""
        there = _listed(_names(source, "operation", by_service))
        return f"No requests{of} of operation {readable(selection.operation)!r}. Operations{of}: {there}."
    return ""


def _names(source: Source, column: str, selection: Selection) -> list[str]:
    """Return the names that most requests have, one more than are listed."""
    query = (
        f"select {column} from requests where {selection.condition()} "  # noqa: S608  the condition is quoted
        f"group by {column} order by count(*) desc, {column} limit {MOST_NAMES + 1}"
    )
    return [str(row[0]) for row in source.sql(query).rows]


def _listed(names: list[str]) -> str:
    more = ", …" if len(names) > MOST_NAMES else ""
    return ", ".join(readable(name) for name in names[:MOST_NAMES]) + more or "none"
