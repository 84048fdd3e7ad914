"""Metrics of the machine and of the container: CPU with steal, pressure, memory, TCP, the quota.

Owns reading /proc/stat, meminfo, vmstat, net/snmp and pressure/*, each through a descriptor that stays open.
What a kernel or a container does not show is left out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tailscope._signals._files import KeptFile, fields_of
from tailscope._signals._instruments import Metric, Point, one
from tailscope.conventions import CONTAINER_CPU_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope._signals._cgroup import Cgroup

TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
CPU_MODES: Final = ("user", "nice", "system", "idle", "iowait", "interrupt", "softirq", "steal")
"""The columns of /proc/stat, by the names of `cpu.mode` (softirq counts as interrupt)."""

STEAL: Final = 8
KIB: Final = 1024
PRESSURES: Final = ("cpu", "memory", "io")


class Machine:
    """What the kernel says of the whole machine."""

    def __init__(self, proc: Path) -> None:
        self._stat = KeptFile(proc / "stat", 512)
        self._memory = KeptFile(proc / "meminfo")
        self._paging = KeptFile(proc / "vmstat", 1 << 16)
        self._tcp = KeptFile(proc / "net" / "snmp", 1 << 14)
        self._pressure = {name: KeptFile(proc / "pressure" / name, 512) for name in PRESSURES}

    def cpu_ticks(self) -> list[int]:
        """Return the ticks of each mode since boot, in the order of CPU_MODES; nothing where it is hidden."""
        words = self._stat.read().split(b"\n", 1)[0].split()
        return [int(word) for word in words[1 : STEAL + 1]] if words[:1] == [b"cpu"] else []

    def steal_s(self) -> float | None:
        """Return the CPU time that the hypervisor gave to others since boot, summed over CPUs."""
        ticks = self.cpu_ticks()
        return ticks[STEAL - 1] / TICKS_A_SECOND if len(ticks) >= STEAL else None

    def metrics(self) -> Iterator[Metric]:
        """Read everything."""
        yield from one("system.cpu.logical.count", "{cpu}", "updown", os.cpu_count())
        ticks = self.cpu_ticks()
        if ticks:
            yield cpu_time(ticks)
        yield from self._memory_metrics()
        yield from self._paging_metrics()
        retransmitted = tcp_retransmits(self._tcp.read())
        yield from one(
            "tailscope.host.tcp.retransmits",
            "{segment}",
            "counter",
            retransmitted,
            "TCP segments sent again.",
        )
        points = [
            Point(stalled_s, {"resource": name, "kind": kind})
            for name, file in self._pressure.items()
            for kind, stalled_s in stalled_seconds(file.read()).items()
        ]
        if points:
            description = "Time in which some or all tasks waited for a resource (PSI)."
            yield Metric("tailscope.host.pressure.time", "s", "counter", points, description)

    def _memory_metrics(self) -> Iterator[Metric]:
        fields = fields_of(self._memory.read())
        if not {"MemTotal", "MemFree", "MemAvailable"} <= set(fields):
            return
        cached = fields.get("Cached", 0) + fields.get("SReclaimable", 0)
        buffers = fields.get("Buffers", 0)
        free = fields["MemFree"]
        states = {"free": free, "cached": cached, "buffers": buffers}
        states["used"] = max(0, fields["MemTotal"] - free - cached - buffers)
        points = [Point(kib * KIB, {"system.memory.state": state}) for state, kib in states.items()]
        yield Metric("system.memory.usage", "By", "updown", points)
        yield from one("system.memory.limit", "By", "updown", fields["MemTotal"] * KIB)
        available = fields["MemAvailable"] * KIB
        yield from one("system.memory.linux.available", "By", "updown", available)

    def _paging_metrics(self) -> Iterator[Metric]:
        fields = fields_of(self._paging.read())
        if "pgmajfault" in fields and "pgfault" in fields:
            minor = fields["pgfault"] - fields["pgmajfault"]
            kinds = {"major": fields["pgmajfault"], "minor": minor}
            points = [Point(count, {"system.paging.fault.type": kind}) for kind, count in kinds.items()]
            yield Metric("system.paging.faults", "{fault}", "counter", points)


def cpu_time(ticks: list[int]) -> Metric:
    """Return `system.cpu.time`, with what the conventions do not tell apart added up."""
    seconds: dict[str, float] = {}
    for mode, count in zip(CPU_MODES, ticks, strict=False):
        told = "interrupt" if mode == "softirq" else mode
        seconds[told] = seconds.get(told, 0.0) + count / TICKS_A_SECOND
    points = [Point(spent_s, {"cpu.mode": mode}) for mode, spent_s in seconds.items()]
    return Metric("system.cpu.time", "s", "counter", points)


def tcp_retransmits(content: bytes) -> int | None:
    """Return the segments sent again, from /proc/net/snmp: a line of names, then one of values."""
    lines = [line.split() for line in content.splitlines() if line.startswith(b"Tcp:")]
    if len(lines) != 2 or b"RetransSegs" not in lines[0]:
        return None
    value = dict(zip(*lines, strict=False)).get(b"RetransSegs", b"")
    return int(value) if value.isdigit() else None


def stalled_seconds(content: bytes) -> dict[str, float]:
    """Return the seconds of `some` and `full` pressure since boot."""
    found: dict[str, float] = {}
    for line in content.splitlines():
        kind, _, total_us = line.partition(b" ")[0], *line.rpartition(b"total=")[1:]
        if total_us.isdigit():
            found[kind.decode("ascii", "replace")] = int(total_us) / 1e6
    return found


def container_metrics(cgroup: Cgroup) -> Iterator[Metric]:
    """Read the container's quota, how often it held the process back, and its memory."""
    yield from one(CONTAINER_CPU_LIMIT, "{cpu}", "updown", cgroup.cpu_limit(), "CPU quota in cores.")
    seen = cgroup.throttling()
    if seen is not None:
        name = "tailscope.container.cpu"
        yield from one(f"{name}.periods", "{period}", "counter", seen.periods)
        yield from one(f"{name}.throttled_periods", "{period}", "counter", seen.throttled_periods)
        description = "Time for which the quota held the container back, summed over CPUs."
        yield from one(f"{name}.throttled_time", "s", "counter", seen.throttled_ns / 1e9, description)
    memory = cgroup.memory()
    if memory is not None:
        yield from one("container.memory.usage", "By", "updown", memory.used_bytes)
        yield from one("tailscope.container.memory.limit", "By", "updown", memory.limit_bytes)
        description = "Times that the group was pushed back at its memory mark."
        yield from one(
            "tailscope.container.memory.reclaims", "{event}", "counter", memory.reclaims, description
        )
