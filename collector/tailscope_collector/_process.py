"""What this process takes of its machine, under the names that Prometheus' own clients use.

Owns the reading of /proc; where there is none, the number is left out of the page.
"""

from __future__ import annotations

import os
import platform
import resource
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb

if TYPE_CHECKING:
    from tailscope_collector._counters import Counters

_STATM: Final = Path("/proc/self/statm")
_FDS: Final = Path("/proc/self/fd")


def describe_process(counters: Counters) -> None:
    """Register the numbers of this process and what is running in it."""
    started = time.time()
    counters.of_process(
        "process_start_time_seconds", "Start of the collector, in seconds since 1970.", lambda: started
    )
    counters.of_process("process_resident_memory_bytes", "Resident memory.", resident_bytes)
    counters.of_process("process_cpu_seconds_total", "CPU time, user and system.", time.process_time)
    counters.of_process("process_open_fds", "Open file descriptors.", lambda: sum(1 for _ in _FDS.iterdir()))
    counters.of_process(
        "process_max_fds", "Bound of file descriptors.", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )
    counters.constant(
        "build_info",
        "What runs here.",
        version=version("tailscope"),
        duckdb=duckdb.__version__,
        python=platform.python_version(),
    )


def resident_bytes() -> float:
    """Return the resident memory of this process; raises OSError where the system does not tell."""
    return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
