"""The evidence of a window, gathered as a report gathers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope_analyzer._parts import split_requests
from tailscope_analyzer._tail import gather_evidence
from tests.analyzer.windows import Window

if TYPE_CHECKING:
    from tailscope_analyzer import Traces
    from tailscope_analyzer._evidence import Evidence


def evidence_of(window: Window | Traces, *, percentile: float = 0.99) -> Evidence:
    """Gather what is known of a window that is large enough for its percentile."""
    traces = window.traces() if isinstance(window, Window) else window
    found = gather_evidence(traces, split_requests(traces), percentile)
    assert found is not None
    return found
