"""What a resource says of the host: how many CPUs there are, and how many this process may use.

Owns reading them once. A model server whose thread pools are larger than its quota is throttled in every
request, and only these numbers side by side show it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from tailscope._signals._cgroup import find_cgroup
from tailscope.conventions import CONTAINER_CPU_LIMIT, HOST_CPU_COUNT, OMP_THREADS

if TYPE_CHECKING:
    from collections.abc import Mapping

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def facts(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the attributes that are known.

    `container.cpu.limit` is the quota, or the number of CPUs that the process is pinned to where that is less
    than the machine has.
    """
    found: dict[str, Any] = {}
    cpus = os.cpu_count()
    if cpus:
        found[HOST_CPU_COUNT] = cpus
    limit = find_cgroup().cpu_limit()
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        allowed = len(os.sched_getaffinity(0))
        if cpus and allowed < cpus:
            limit = min(limit, float(allowed)) if limit is not None else float(allowed)
    if limit is not None:
        found[CONTAINER_CPU_LIMIT] = limit
    threads = omp_threads(os.environ if environment is None else environment)
    if threads is not None:
        found[OMP_THREADS] = threads
    return found


def omp_threads(environment: Mapping[str, str]) -> int | None:
    """Return how many threads numeric libraries use: what torch says, or the variables; None for neither."""
    torch = sys.modules.get("torch")
    count = getattr(torch, "get_num_threads", None)
    if count is not None:
        return int(count())
    for name in THREAD_VARIABLES:
        first = environment.get(name, "").split(",")[0].strip()
        if first.isdigit():
            return int(first)
    return None
