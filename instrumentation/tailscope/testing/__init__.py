"""Tests of a service's own spans: recorded in memory, with a clock that stands still and ids that repeat.

    from tailscope.testing import Clock, recording

    def test_what_a_prediction_does():
        clock = Clock()
        with recording(clock=clock) as spans:
            predict(slow_model(clock))
        assert spans.request("predict").stages == {"preprocess": 1.0, "inference": 40.0}

Nothing leaves the process, and what a test sees is decoded from the very bytes that would have been sent.
"""

from __future__ import annotations

from tailscope.testing._clock import Clock
from tailscope.testing._recording import Recording, recording
from tailscope.testing._spans import Event, RecordedSpan

__all__ = ["Clock", "Event", "RecordedSpan", "Recording", "recording"]
