"""NVIDIA GPUs as their driver sees them: utilisation, clocks, why they are throttled, temperature, memory.

Owns NVML through the package `nvidia-ml-py`, where that and a driver are there, and one thread for it: a call
takes milliseconds, and one to a broken driver may never return. Only the GPUs that this process may use are
asked (CUDA_VISIBLE_DEVICES). Never initialises CUDA, changes no setting.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailscope import _guard
from tailscope._local import now
from tailscope._signals._instruments import Metric, Point
from tailscope.conventions import GPU_CLOCK_MHZ, GPU_MEMORY_USED_BYTES, GPU_TEMPERATURE_C, GPU_UTILIZATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INTERVAL_S: Final = 1.0
FRESH_NS: Final = 2_000_000_000
"""An older sample says nothing of a request that ends now."""

THROTTLED_BY: Final = {
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}
"""Bits of NVML's clock event reasons that slow a busy GPU down (0x1 is an idle one)."""

IDLE: Final = 0x1
GPU_THROTTLE: Final = "gpu.throttle_reason"


class Sample(NamedTuple):
    """One GPU at one moment; None for what the driver does not tell."""

    at_ns: int
    utilization: float | None
    """0 to 1: the share of the driver's last interval in which any kernel ran."""
    clock_mhz: int | None
    temperature_c: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    power_w: float | None
    reasons: int | None

    def throttled_by(self) -> list[str]:
        """Return why the clock is held down; nothing for an idle or a free GPU."""
        return [word for bit, word in THROTTLED_BY.items() if self.reasons and self.reasons & bit]


class Gpu:
    """One GPU: who it is, and its last sample."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.identity: dict[str, str | int] = {
            "hw.id": text(ask(nvml, "nvmlDeviceGetUUID", handle)),
            "hw.name": text(ask(nvml, "nvmlDeviceGetName", handle)),
            "hw.vendor": "nvidia",
        }
        self.last: Sample | None = None

    def sample(self) -> None:
        """Ask the driver."""
        nvml, handle = self._nvml, self._handle
        rates = ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
        memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
        milliwatts = ask(nvml, "nvmlDeviceGetPowerUsage", handle)
        reasons = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # drivers before 535 have the old name alone
            reasons = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        self.last = Sample(
            at_ns=now(),
            utilization=None if rates is None else rates.gpu / 100,
            clock_mhz=ask(nvml, "nvmlDeviceGetClockInfo", handle, getattr(nvml, "NVML_CLOCK_SM", 1)),
            temperature_c=ask(
                nvml, "nvmlDeviceGetTemperature", handle, getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
            ),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            power_w=None if milliwatts is None else milliwatts / 1000,
            reasons=reasons,
        )


class Gpus:
    """The GPUs that this process may use, in the order that it numbers them."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._gpus: list[Gpu] = []

    def start(self) -> bool:
        """Start sampling where `nvidia-ml-py` is installed; return whether it is."""
        try:
            nvml: Any = import_module("pynvml")
        except Exception:  # noqa: BLE001 - whatever goes by that name may fail as it likes
            return False
        thread = self._thread = threading.Thread(
            target=self._run, args=(nvml,), name="tailscope-nvml", daemon=True
        )
        thread.start()
        return True

    def _run(self, nvml: Any) -> None:
        try:
            nvml.nvmlInit()
        except Exception:  # noqa: BLE001 - the usual answer of a machine without a GPU
            return
        with _guard.guard("nvml"):
            self._gpus = [Gpu(nvml, handle) for handle in visible(nvml, os.environ)]
        while self._gpus:
            for gpu in self._gpus:
                with _guard.guard("nvml"):
                    gpu.sample()
            if self._stopping.wait(INTERVAL_S):
                break
        with _guard.guard("nvml"):
            nvml.nvmlShutdown()

    def stop(self) -> None:
        """Stop sampling, without waiting for the driver."""
        self._stopping.set()

    def attributes(self, index: int = 0) -> Mapping[str, Any]:
        """Return attributes for a request that used the GPU of this index; nothing without a fresh sample."""
        sample = self._gpus[index].last if 0 <= index < len(self._gpus) else None
        if sample is None or now() - sample.at_ns > FRESH_NS:
            return {}
        found: dict[str, Any] = {
            GPU_UTILIZATION: sample.utilization,
            GPU_CLOCK_MHZ: sample.clock_mhz,
            GPU_TEMPERATURE_C: sample.temperature_c,
            GPU_MEMORY_USED_BYTES: sample.memory_used_bytes,
            GPU_THROTTLE: ",".join(sample.throttled_by()) or None,
        }
        return {key: value for key, value in found.items() if value is not None}

    def metrics(self) -> Iterator[Metric]:
        """Return the last samples of all GPUs, by the conventions for hardware where they have a name."""
        fresh = [
            (gpu, gpu.last)
            for gpu in self._gpus
            if gpu.last is not None and now() - gpu.last.at_ns <= FRESH_NS
        ]
        for name, unit, field in (
            ("hw.gpu.utilization", "1", "utilization"),
            ("hw.gpu.memory.usage", "By", "memory_used_bytes"),
            ("hw.gpu.memory.limit", "By", "memory_total_bytes"),
            ("hw.temperature", "Cel", "temperature_c"),
            ("hw.power", "W", "power_w"),
            (GPU_CLOCK_MHZ, "MHz", "clock_mhz"),
        ):
            points = [
                Point(value, {**gpu.identity, "hw.type": "gpu"})
                for gpu, sample in fresh
                if (value := getattr(sample, field)) is not None
            ]
            if points:
                yield Metric(name, unit, "updown" if unit == "By" else "gauge", points)
        points = [
            Point(int(word in sample.throttled_by()), {**gpu.identity, "reason": word})
            for gpu, sample in fresh
            if sample.reasons is not None
            for word in THROTTLED_BY.values()
        ]
        if points:
            yield Metric(
                "tailscope.gpu.throttled", "1", "gauge", points, "1 while the reason holds the clock down."
            )


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Call NVML; None where the driver or the GPU does not support it."""
    try:
        return getattr(nvml, name)(*arguments)
    except Exception:  # noqa: BLE001 - NVMLError of whatever kind, or an older package
        return None


def text(value: Any) -> str:
    """Return a name as text: older versions of the package give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def visible(nvml: Any, environment: Mapping[str, str]) -> list[Any]:
    """Return handles of the GPUs in CUDA_VISIBLE_DEVICES, all of them where it is not set."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    handles: list[Any] = []
    for word in chosen.split(","):
        name = word.strip()
        handle = None
        if name.isdigit():
            handle = ask(nvml, "nvmlDeviceGetHandleByIndex", int(name))
        elif name.startswith(("GPU-", "MIG-")):
            handle = ask(nvml, "nvmlDeviceGetHandleByUUID", name)
        if handle is None:  # CUDA ignores what comes after the first that it does not know
            break
        handles.append(handle)
    return handles
