"""The container's limits and how often they held the process back, from cgroup v1 or v2.

Owns finding the group (the tightest limit on the way from the process's own group up to what the container
shows) and the meaning of its files. Never writes to a cgroup. Where there is none, or it is hidden, every
value is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailscope._signals._files import KeptFile, fields_of, number_of, read_small

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")

UNLIMITED_BYTES: Final = 1 << 60
"""cgroup v1 writes "no limit" as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """How the CPU quota has worked so far; counts since the group was made."""

    periods: int
    throttled_periods: int
    throttled_ns: int
    """Summed over the CPUs on which the group had to wait, so it can pass the time on the clock."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory charged to the group."""

    used_bytes: int
    limit_bytes: int | None
    reclaims: int | None
    """How often the group was pushed back at its `high` or `max` mark; None in v1."""


class Cgroup:
    """The cgroup that this process is held to."""

    def __init__(self, version: int, cpu: list[Path], memory: list[Path]) -> None:
        self.version = version
        """1, 2, or 0 where there is none."""
        self._memory = memory
        self._cpu = tightest(version, cpu)
        self._stat = KeptFile(self._cpu / "cpu.stat", 1024) if self._cpu is not None else None

    def cpu_limit(self) -> float | None:
        """Return the CPU quota in cores; None where there is none. Read anew: it can be changed in place."""
        return quota_of(self.version, self._cpu) if self._cpu is not None else None

    def throttling(self) -> Throttling | None:
        """Return how the quota has worked; None where the kernel does not say."""
        if self._stat is None:
            return None
        fields = fields_of(self._stat.read())
        if "nr_throttled" not in fields:
            return None
        throttled_ns = fields.get("throttled_usec", 0) * 1000 + fields.get("throttled_time", 0)
        return Throttling(fields.get("nr_periods", 0), fields["nr_throttled"], throttled_ns)

    def memory(self) -> MemoryUse | None:
        """Return the memory of the process's own group, and the tightest limit above it."""
        if not self._memory:
            return None
        names = ("memory.current", "memory.max")
        if self.version == 1:
            names = ("memory.usage_in_bytes", "memory.limit_in_bytes")
        used = number_of(read_small(self._memory[0] / names[0]))
        if used is None:
            return None
        limits = [number_of(read_small(folder / names[1])) for folder in self._memory]
        real = [limit for limit in limits if limit is not None and limit < UNLIMITED_BYTES]
        events = fields_of(read_small(self._memory[0] / "memory.events"))
        reclaims = events["high"] + events["max"] if {"high", "max"} <= set(events) else None
        return MemoryUse(used, min(real, default=None), reclaims)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._stat is not None:
            self._stat.close()


def find_cgroup(proc: Path = PROC, root: Path = CGROUPS) -> Cgroup:
    """Return the cgroup of this process, by `proc`/self/cgroup and the tree at `root`."""
    paths: dict[str, str] = {}
    for line in read_small(proc / "self" / "cgroup").decode("utf-8", "replace").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        for controller in controllers.split(","):
            paths[controller] = path
    if "cpu" in paths or "memory" in paths:
        return Cgroup(1, *(folders_of_v1(root, name, paths) for name in ("cpu", "memory")))
    if "" in paths:
        folders = chain_of(root, paths[""])
        memory = [folder for folder in folders if (folder / "memory.current").exists()]
        return Cgroup(2, folders, memory) if folders else Cgroup(0, [], [])
    return Cgroup(0, [], [])


def folders_of_v1(root: Path, controller: str, paths: dict[str, str]) -> list[Path]:
    """Return the folders of one controller of cgroup v1, innermost first."""
    if controller not in paths:
        return []
    for name in (controller, "cpu,cpuacct", "cpuacct,cpu"):
        if (root / name).is_dir():
            return chain_of(root / name, paths[controller])
    return []


def chain_of(top: Path, path: str) -> list[Path]:
    """Return the folders from the process's group up to `top`.

    A container without a cgroup namespace of its own sees the host's path; its group is mounted at `top`.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    folders = [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]
    return [folder for folder in folders if folder.is_dir()]


def tightest(version: int, folders: list[Path]) -> Path | None:
    """Return the folder with the smallest quota; without any quota the innermost that counts at all."""
    limited = [(quota, folder) for folder in folders if (quota := quota_of(version, folder)) is not None]
    if limited:
        return min(limited, key=lambda pair: pair[0])[1]
    return next((folder for folder in folders if (folder / "cpu.stat").exists()), None)


def quota_of(version: int, folder: Path) -> float | None:
    """Return the quota of one group in cores; None where it has none."""
    if version == 1:
        quota = number_of(read_small(folder / "cpu.cfs_quota_us"))
        period = number_of(read_small(folder / "cpu.cfs_period_us"))
    else:
        words = read_small(folder / "cpu.max").split()
        quota, period = (number_of(word) for word in (*words, b"", b"")[:2])
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period
