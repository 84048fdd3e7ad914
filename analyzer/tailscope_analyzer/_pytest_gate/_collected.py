"""Requests of a service under test that sends to a collector.

Owns the wait until they have arrived.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._source import open_source

if TYPE_CHECKING:
    from tailscope_analyzer._source import Selection
    from tailscope_analyzer._traces import Traces

QUIET_S: Final = 1.0
"""Instrumentation sends every 50 ms (OpenTelemetry's own every 5 s, unless told otherwise), and the collector
acknowledges within 0.1 s: what has not come in so long comes late."""
MOST_S: Final = 15.0


def collected(url: str, selection: Selection) -> Traces:
    """Ask the collector for the selected requests until no more arrive; raises AnalyzerError."""
    source = open_source(url, None)
    try:
        seen, deadline = -1, time.monotonic() + MOST_S
        while True:
            traces = source.traces(selection)
            if (len(traces) == seen and seen) or time.monotonic() > deadline:
                _ = traces.spans  # asked for while the source is open
                return traces
            seen = len(traces)
            time.sleep(QUIET_S)
    finally:
        source.close()
