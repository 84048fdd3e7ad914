"""profile_slow with PyTorch's profiler: the operators of the slow request itself."""

from __future__ import annotations

import gzip
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope._profile import profile_slow
from tailscope._profilers import TorchProfiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch: Any = pytest.importorskip("torch", reason="torch is not installed: its profiler needs the real one")


def test_operators_of_a_request_that_is_turning_slow_are_recorded(
    recorded: Callable[[], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyTorch's first profile of a process begins when its library has loaded: seconds on a busy machine.
    begun, start = threading.Event(), TorchProfiler.start
    monkeypatch.setattr(TorchProfiler, "start", lambda profiler: (start(profiler), begun.set()))
    left, right = torch.ones(64, 64), torch.ones(64, 64)
    with profile_slow(threshold_ms=50, kind="torch", every_s=60, directory=tmp_path) as watching:
        with tailscope.request("slow"):
            assert begun.wait(30), tailscope.stats().errors
            for _ in range(100):
                torch.mm(left, right)
        until = time.monotonic() + 30
        while not watching.taken:
            assert time.monotonic() < until, tailscope.stats().errors
            time.sleep(0.01)

    span = next(span for span in recorded() if span.name == "slow")
    assert span.attributes["tailscope.profile.kind"] == "torch"
    with gzip.open(span.attributes["tailscope.profile.path"]) as file:
        record = json.load(file)
    assert record["tailscope.trace_id"] == span.trace_id
    assert record["tailscope.span_id"] == span.span_id
    assert sum(event.get("name") == "aten::mm" for event in record["traceEvents"]) > 10
    assert tailscope.stats().errors == {}


def test_a_service_that_profiles_itself_goes_on_doing_so(
    recorded: Callable[[], list[Any]], tmp_path: Path
) -> None:
    with (
        profile_slow(threshold_ms=30, kind="torch", every_s=60, directory=tmp_path),
        torch.profiler.profile() as own,
        tailscope.request("slow"),
    ):
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline:
            torch.zeros(8).sum()
            time.sleep(0.001)

    assert any(average.key == "aten::sum" for average in own.key_averages())
    assert [span.name for span in recorded()] == ["slow"]
    assert set(tailscope.stats().errors) == {"profile:busy"}
