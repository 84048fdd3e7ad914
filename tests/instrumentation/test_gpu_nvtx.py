"""Stages as NVTX ranges: balanced on every thread, whatever leaves in whatever order."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tailscope
from tailscope import _gpu, _nvtx
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tailscope._nvtx import NvtxStage
from tailscope._record import NOT_STARTED
from tests.instrumentation.gpu_fake import FakeBackend, worked

Spans = Callable[[], list[Any]]


class RecordingNvtx:
    """NVTX's rules: one stack of ranges for each thread, and ranges that overlap."""

    def __init__(self) -> None:
        self.stacks: dict[int, list[str]] = {}
        self.open: dict[int, str] = {}
        self.seen: list[str] = []

    def push(self, name: str) -> object:
        self.stacks.setdefault(threading.get_ident(), []).append(name)
        self.seen.append(f"push {name}")
        return 0

    def pop(self) -> object:
        self.seen.append(f"pop {self.stacks[threading.get_ident()].pop()}")
        return 0

    def start(self, name: str) -> Any:
        self.open[len(self.seen)] = name
        self.seen.append(f"start {name}")
        return len(self.seen) - 1

    def end(self, handle: Any) -> object:
        self.seen.append(f"end {self.open.pop(handle)}")
        return 0

    @property
    def balanced(self) -> bool:
        """Whether nothing is left open."""
        return not self.open and not any(self.stacks.values())


@pytest.fixture
def ranges() -> Iterator[RecordingNvtx]:
    """Open ranges in a library that notes them."""
    library = RecordingNvtx()
    assert _nvtx.enable(library) is NvtxStage
    yield library
    _nvtx.disable()


def nvtx_stage(name: str) -> NvtxStage:
    """Return what `stage(name)` makes when the setting is on."""
    opened = NvtxStage()
    opened._name, opened._stage, opened._attributes = name, None, None
    opened._end_ns = NOT_STARTED
    return opened


def test_nested_stages_are_nested_ranges_with_their_names(ranges: RecordingNvtx, recorded: Spans) -> None:
    with tailscope.request("predict"), nvtx_stage("inference"), nvtx_stage("inference.forward"):
        pass

    assert ranges.seen == [
        "push inference",
        "push inference.forward",
        "pop inference.forward",
        "pop inference",
    ]
    assert {span.name for span in recorded()} == {"predict", "inference", "inference.forward"}


def test_an_exception_closes_its_range(ranges: RecordingNvtx, recorded: Spans) -> None:
    with tailscope.request("predict"), pytest.raises(ValueError, match="bad"), nvtx_stage("inference"):
        raise ValueError("bad")

    assert ranges.balanced
    assert {span.name: span.status[0] for span in recorded()}["inference"] == 2


def test_tasks_that_leave_out_of_order_use_ranges_that_may_overlap(
    ranges: RecordingNvtx, recorded: Spans
) -> None:
    async def serve(name: str, pause_s: float) -> None:
        with tailscope.request("predict"), nvtx_stage(name):
            await asyncio.sleep(pause_s)

    async def main() -> None:
        await asyncio.gather(serve("long", 0.05), serve("short", 0.01))

    asyncio.run(main())

    assert ranges.seen == ["start long", "start short", "end short", "end long"]
    assert ranges.balanced
    assert recorded()


def test_a_generator_has_one_range_from_its_first_item_to_its_end(
    ranges: RecordingNvtx, recorded: Spans
) -> None:
    @tailscope.stage("inference", gpu=True)
    def generate() -> Iterator[int]:
        yield 1
        yield 2

    with tailscope.request("predict"):
        for _ in generate():
            with nvtx_stage("serialize"):
                pass

    assert ranges.balanced
    assert ranges.seen[0] == "start inference"
    assert ranges.seen.count("push serialize") == 2
    assert recorded()


def test_a_stage_entered_twice_has_one_range(ranges: RecordingNvtx, recorded: Spans) -> None:
    with tailscope.request("predict"), nvtx_stage("inference") as stage, stage:
        pass

    assert ranges.seen == ["push inference", "pop inference"]
    assert recorded()


def test_stages_with_gpu_time_are_ranges_too(ranges: RecordingNvtx, recorded: Spans) -> None:
    backends = list(REGISTRY.backends)
    fake = FakeBackend()
    with tailscope.request("predict"), tailscope.stage("on the host", gpu=True):
        pass
    _gpu.register(fake)
    try:
        with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
            fake.stream().work(3)
        assert _gpu.settle(10**9)
    finally:
        HOLDER.renew().close()
        REGISTRY.backends[:] = backends
        REGISTRY.forget()

    assert ranges.seen == ["push on the host", "pop on the host", "push inference", "pop inference"]
    spans = {span.name: span for span in recorded()}
    assert worked(spans["inference"], 3)


def test_a_library_that_fails_harms_no_stage(ranges: RecordingNvtx, recorded: Spans) -> None:
    def fail(name: str) -> object:
        raise OSError(name)

    ranges.push = fail  # type: ignore[method-assign]
    with tailscope.request("predict"), nvtx_stage("inference"):
        pass

    assert {span.name for span in recorded()} == {"predict", "inference"}
    assert tailscope.stats().errors["nvtx"] == 1


def test_turned_off_no_range_is_opened(ranges: RecordingNvtx, recorded: Spans) -> None:
    _nvtx.disable()
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True), nvtx_stage("forward"):
        pass

    assert ranges.seen == []
    assert recorded()


def test_without_nvtx_the_setting_is_said_to_be_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", None)

    assert _nvtx.enable() is None
    assert tailscope.stats().errors == {"nvtx": 1}


def test_the_real_package_takes_what_we_give_it(recorded: Spans) -> None:
    pytest.importorskip("nvtx", reason="the package nvtx is not installed")
    assert _nvtx.enable() is NvtxStage
    try:
        with tailscope.request("predict"), nvtx_stage("inference"):
            pass

        async def serve() -> None:
            with nvtx_stage("later"):
                await asyncio.sleep(0)

        asyncio.run(serve())
    finally:
        _nvtx.disable()

    assert {span.name for span in recorded()} == {"predict", "inference", "later"}
    assert tailscope.stats().errors == {}
