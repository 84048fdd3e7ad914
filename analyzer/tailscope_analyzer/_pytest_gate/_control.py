"""Machines differ: what is known of this one, and a control that tells how much faster it is.

Owns the description of the machine, the ratio of two runs of a control, and the baseline as it would have
been at that ratio. A ratio is only as good as the control is like the load.
"""

from __future__ import annotations

import os
import platform
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from scipy.special import stdtrit

from tailscope_analyzer._arrow import pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope_analyzer._arrays import Ints

CONTROLS: Final = 20
"""Runs of a control on either side of the load: their mean is known to a tenth of their scatter, and that
they are run before and after shows a machine that changes its speed."""
LEVEL: Final = 0.975
_ar: Any = pa


def this_machine() -> dict[str, str]:
    """Describe what durations depend on: processor, cores and interpreter."""
    return {
        "processor": _processor(),
        "cores": str(_cores()),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {'.'.join(platform.python_version_tuple()[:2])}",
    }


def time_control(control: Callable[[], object]) -> list[float]:
    """Run a control and return what each run took, in ms."""
    took: list[float] = []
    for _ in range(CONTROLS):
        began = time.perf_counter_ns()
        control()
        took.append((time.perf_counter_ns() - began) / 1e6)
    return took


def ratio_of(baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> tuple[float, float, float]:
    """Return how many times as long the control takes now, and the 95 % interval of that.

    Of the means of logarithms, so that one run that was interrupted does not decide.
    """
    logs = [np.log(np.maximum(np.asarray(side, dtype=float), 1e-6)) for side in (baseline_ms, candidate_ms)]
    middle = float(logs[1].mean() - logs[0].mean())
    error = float(np.sqrt(sum(log.var(ddof=1) / len(log) for log in logs)))
    reach = error * float(stdtrit(min(map(len, logs)) - 1, LEVEL))
    low, ratio, high = np.exp([middle - reach, middle, middle + reach]).tolist()
    return ratio, low, high


def stretched(spans: pa.Table, factor: float) -> pa.Table:
    """Return spans that take `factor` times as long, within traces that begin when they did.

    Attributes that tell durations stay as they are.
    """
    begins = (
        pl.DataFrame({"trace": _column(spans["trace_id"]), "start": _column(spans["start_unix_nano"])})
        .with_columns(origin=pl.col("start").min().over("trace"))["origin"]
        .to_numpy()
    )
    start, duration = (spans[name].to_numpy() for name in ("start_unix_nano", "duration_ns"))
    # Ends are moved, not durations: siblings that met without a gap still do.
    moved, ended = (
        begins + np.rint((at - begins) * factor).astype(np.int64) for at in (start, start + duration)
    )
    columns = {"start_unix_nano": pa.array(moved), "duration_ns": pa.array(ended - moved)}
    if "events" in spans.column_names:
        columns["events"] = _moved_events(spans["events"].combine_chunks(), begins, factor)
    for name, column in columns.items():
        number = spans.column_names.index(name)
        spans = spans.set_column(number, spans.field(number), pa.chunked_array([column]))
    return spans


def _moved_events(lists: Any, begins: Any, factor: float) -> Any:
    events: Any = pc.list_flatten(lists)
    origin = begins[pc.list_parent_indices(lists).to_numpy()]
    at = events.field("time_unix_nano").to_numpy(zero_copy_only=False)
    moved = origin + np.rint((at - origin) * factor).astype(np.int64)
    kinds: list[Any] = [*events.type]
    values = [_ar.array(moved) if one.name == "time_unix_nano" else events.field(one.name) for one in kinds]
    counts: Ints = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = _ar.array(np.r_[0, np.cumsum(counts)].astype(np.int32))
    return _ar.ListArray.from_arrays(
        offsets, _ar.StructArray.from_arrays(values, fields=kinds), type=lists.type
    )


def _column(column: Any) -> pl.Series:
    return pl.Series(column.to_pylist())


def _processor() -> str:
    """Return the model of the processor; Linux alone tells it in a file."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - a device, not a path of ours
            named = next((line for line in lines if line.startswith("model name")), "")
    except OSError:
        named = ""
    return named.partition(":")[2].strip() or platform.processor() or platform.machine()


def _cores() -> int:
    """Return how many cores this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1
