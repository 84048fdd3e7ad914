"""What `gpu=True`, `profile_slow` and layer hooks add to the request path, in microseconds.

    python benchmarks/gpu_stages.py

The device is a stand-in whose calls do nothing, so the figures are Tailscope's own part: CUDA's is two event
records (about 1 us each) and, with torch, one look-up of the current stream. Layer hooks are measured where
torch is installed. Each figure is the median of paired rounds.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope import _gpu
from tailscope._gpu._protocol import Lane
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tailscope._profile import profile_slow

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 40
STAGES = 500


class IdleDevice:
    """A device that has always passed everything."""

    name = "idle"

    def __init__(self) -> None:
        self._lane = Lane(0, 0, None)

    def ready(self) -> bool:
        """Be in use."""
        return True

    def current(self) -> Lane:
        """Have one stream."""
        return self._lane

    def is_capturing(self) -> bool:
        """Capture nothing."""
        return False

    def captures(self) -> int:
        """Capture nothing."""
        return 0

    def make_event(self, _device: int) -> Any:
        """Return an event."""
        return object()

    def record(self, _event: Any, _handle: Any) -> None:
        """Pass it at once."""

    def is_done(self, _event: Any) -> bool:
        """Have passed it."""
        return True

    def elapsed_ms(self, _start: Any, _end: Any) -> float:
        """Take no time."""
        return 0.0

    def private_stream(self, _device: int) -> Any:
        """Have no other stream."""
        return None

    def enter_thread(self) -> None:
        """Need nothing."""


def stages(gpu: bool) -> float:
    """Return the thread's CPU time for one stage of a request, in us."""
    spent_ns = 0
    for _ in range(STAGES // 50):
        with tailscope.request("predict"):
            start = time.thread_time_ns()
            for _ in range(50):
                with tailscope.stage("inference", gpu=gpu):
                    pass
            spent_ns += time.thread_time_ns() - start
        time.sleep(0.006)  # the resolver gives the events back
    tailscope.flush(timeout_s=0.001)
    return spent_ns / STAGES / 1e3


def requests() -> float:
    """Return the thread's CPU time for one empty request, in us."""
    start = time.thread_time_ns()
    for _ in range(STAGES):
        with tailscope.request("predict"):
            pass
    return (time.thread_time_ns() - start) / STAGES / 1e3


def compare(first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Return the medians of both, measured in turns."""
    first(), second()
    pairs = [(first(), second()) for _ in range(ROUNDS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def profiled_requests() -> float:
    """Return the CPU time of a request that `profile_slow` watches."""
    with profile_slow(threshold_ms=1000, directory=tempfile.gettempdir()):
        return requests()


def background_share(gpu: bool) -> float:
    """Return how much of a core the background threads use at 1000 stages a second, in percent."""
    stop = threading.Event()
    own_ns = 0

    def serve() -> None:
        nonlocal own_ns
        while not stop.wait(0.01):
            with tailscope.request("predict"):
                for _ in range(10):
                    with tailscope.stage("inference", gpu=gpu):
                        pass
        own_ns = time.thread_time_ns()

    thread = threading.Thread(target=serve)
    before_ns, start = time.process_time_ns(), time.monotonic()
    thread.start()
    time.sleep(3)
    stop.set()
    thread.join()
    spent_ns = time.process_time_ns() - before_ns - own_ns
    return 100 * spent_ns / 1e9 / (time.monotonic() - start)


def layers() -> None:
    """Print what hooks cost in requests that are not chosen."""
    try:
        torch: Any = import_module("torch")
    except ImportError:
        print("layer hooks: torch is not installed")
        return
    from tailscope._gpu._layers import time_layers

    model = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(100)])
    nothing = torch.zeros(1)

    def forward() -> float:
        with tailscope.request("predict"), torch.no_grad():
            start = time.thread_time_ns()
            for _ in range(20):
                model(nothing)
            return (time.thread_time_ns() - start) / 2000 / 1e3

    def hooked() -> float:
        with time_layers(model, every=1 << 127):
            return forward()

    plain_us, hooked_us = compare(forward, hooked)
    print(f"{'layer of a model':34}{plain_us:9.2f}{hooked_us:9.2f}{hooked_us - plain_us:9.2f}")


def main() -> None:
    """Print the table."""
    tailscope.init(service="bench", endpoint="http://127.0.0.1:9")
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}, {ROUNDS} paired rounds of {STAGES}")
    print(f"{'us of the request path':34}{'without':>9}{'with':>9}{'added':>9}")
    _gpu.register(IdleDevice())
    plain, timed = compare(lambda: stages(False), lambda: stages(True))
    print(f"{'stage, gpu=True, idle stand-in':34}{plain:9.2f}{timed:9.2f}{timed - plain:9.2f}")
    plain, timed = background_share(False), background_share(True)
    print(f"{'% of a core at 1000 stages a second':34}{plain:9.2f}{timed:9.2f}{timed - plain:9.2f}")
    HOLDER.renew().close()
    REGISTRY.backends.pop(0)
    REGISTRY.forget()
    plain, fallback = compare(lambda: stages(False), lambda: stages(True))
    print(f"{'stage, gpu=True, no device':34}{plain:9.2f}{fallback:9.2f}{fallback - plain:9.2f}")
    plain, watched = compare(requests, profiled_requests)
    print(f"{'request, profile_slow':34}{plain:9.2f}{watched:9.2f}{watched - plain:9.2f}")
    layers()


if __name__ == "__main__":
    main()
