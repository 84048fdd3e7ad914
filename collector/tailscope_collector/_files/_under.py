"""The span that a profile is imported beneath, asked of whoever holds the traces.

Owns what `--under` means. Invents no span: what the collector does not know is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tailscope_collector._files._chrome import SCOPE
from tailscope_collector._files._chrome_plan import Under
from tailscope_collector.errors import CollectorError

if TYPE_CHECKING:
    from tailscope_analyzer import Source

_WRITTEN: Final = re.compile(r"([0-9a-fA-F]{32})(?::([0-9a-fA-F]{16}))?")
_NAMED: Final = 5


def find_under(written: str, source: Source) -> Under:
    """Return the span that `TRACE_ID` or `TRACE_ID:SPAN_ID` names; raises CollectorError.

    Without a span id it is the longest span of the trace whose stage is inference.
    """
    found = _WRITTEN.fullmatch(written.strip())
    if found is None:
        raise CollectorError(
            f"--under {written!r} is no span: it looks like TRACE_ID or TRACE_ID:SPAN_ID, "
            "32 and 16 hex digits."
        )
    trace_id, span_id = found[1].lower(), (found[2] or "").lower()
    # The id is hex, by the expression above.
    query = (
        "select span_id, service, operation, stage, start_unix_nano, coalesce(duration_ns, 0), scope "  # noqa: S608
        f"from spans where trace_id = '{trace_id}' and start_unix_nano is not null "
        "order by coalesce(duration_ns, 0) desc, start_unix_nano, span_id"
    )
    rows = source.sql(query).rows
    if not span_id:
        # Not what another profile has brought.
        rows = [row for row in rows if not str(row[6]).startswith(SCOPE)]
    if not rows:
        raise CollectorError(
            f"There is no trace {trace_id} to put a profile under. It may not have arrived yet."
        )
    for stages in (("inference",), ("inference.forward", "inference.prefill", "inference.decode")):
        for row in rows:
            if row[0] == span_id or (not span_id and row[3] in stages):
                return _under(trace_id, row)
    longest = ", ".join(f"{row[0]} ({row[2]})" for row in rows[:_NAMED])
    missing = f"no span {span_id}" if span_id else "no inference span; say which one with TRACE_ID:SPAN_ID"
    raise CollectorError(f"Trace {trace_id} has {missing}. Its longest: {longest}.")


def _under(trace_id: str, row: tuple[Any, ...]) -> Under:
    span_id, service, _, stage, start_ns, duration_ns, _ = row
    return Under(
        bytes.fromhex(trace_id),
        bytes.fromhex(span_id),
        str(service),
        int(start_ns),
        int(start_ns) + int(duration_ns),
        str(stage or "inference"),
    )
