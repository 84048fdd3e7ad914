"""The requests of a window in order of time, with the time each spends where.

Owns the order (start, then trace id), the folding of parts to (service, stage, category) and what is known of
who served a request. Reads nothing twice and never changes the split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._parts import counted_requests

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._evidence import Evidence
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._traces import Traces

MOST_STAGES: Final = 40
LEAST_OF_TIME: Final = 0.002
"""Stages of a smaller share of all time are not looked at: three times as much is not felt either."""
MOST_GROUPS: Final = 12
"""Instances of a service, or versions, that are looked at by themselves: those that serve most."""
FAILED: Final = ("error",)


@dataclass(frozen=True, slots=True, order=True)
class Stage:
    """Name one part of the time, whoever is called."""

    service: str
    stage: str
    category: str


@dataclass(frozen=True, slots=True)
class Group:
    """Hold which requests one instance or version served."""

    service: str
    """Whose instance it is; empty for a version."""
    instance: str
    version: str
    member: Bools


@dataclass(frozen=True, slots=True)
class WindowInTime:
    """Hold requests in order of start; `stage_ms[k][i]` is what request i spends in stage k."""

    start_ns: Ints
    duration_ms: Floats
    weight: Floats
    stages: list[Stage]
    stage_ms: list[Floats]
    failed: Bools
    groups: list[Group]

    def __len__(self) -> int:
        return len(self.start_ns)


def in_time(traces: Traces, split: Parts, evidence: Evidence | None) -> WindowInTime:
    """Lay out the requests of a split in order of time.

    Instances of services behind the entry come from `evidence`, where it holds every request.
    """
    requests = counted_requests(
        traces,
        "trace_id",
        "start_unix_nano",
        "duration_ns",
        "service",
        "instance",
        "version",
        "status",
        "http_status",
    )
    if not requests["start_unix_nano"].is_sorted():
        requests = requests.sort("start_unix_nano", "trace_id")
    fastest_first = _fastest_first(requests)
    stages, stage_ms = _stages(split, fastest_first)
    duration, weight = np.empty(len(requests)), np.empty(len(requests))
    duration[fastest_first], weight[fastest_first] = split.duration_ms, split.weight
    failed = requests.select(
        pl.col("status").is_in(FAILED).fill_null(value=False)
        | (pl.col("http_status") >= 500).fill_null(value=False)
    )
    return WindowInTime(
        start_ns=requests["start_unix_nano"].to_numpy(),
        duration_ms=duration,
        weight=weight,
        stages=stages,
        stage_ms=stage_ms,
        failed=failed.to_series().to_numpy(),
        groups=[*_instances(requests, evidence), *_groups(requests["version"], "", of_version=True)],
    )


def _fastest_first(requests: pl.DataFrame) -> Ints:
    """Return the rows in the order of a split: by duration, then trace id."""
    duration = requests["duration_ns"].to_numpy()
    order = np.argsort(duration)
    ordered = duration[order]
    same = np.r_[False, ordered[1:] == ordered[:-1]]
    tied = np.flatnonzero(same | np.r_[same[1:], False])
    # Ids are looked at only where durations are equal: sorting a million by both takes 0.3 s longer.
    rows = requests.select("duration_ns", "trace_id")[order[tied]]
    order[tied] = order[tied][rows.select(pl.arg_sort_by("duration_ns", "trace_id")).to_series().to_numpy()]
    return order


def _stages(split: Parts, place: Ints) -> tuple[list[Stage], list[Floats]]:
    """Return the largest stages and their ms by request, those of the split's row i at place[i]."""
    columns = split.matrix.tocsc()
    total = float(split.duration_ms.sum()) or 1.0
    numbers: dict[Stage, list[int]] = {}
    for number, part in enumerate(split.parts):
        numbers.setdefault(Stage(part.service, part.stage, part.category), []).append(number)
    spent = np.add.reduceat(np.r_[columns.data, 0.0], columns.indptr[:-1]) if columns.nnz else np.zeros(0)
    spent = np.where(np.diff(columns.indptr) > 0, spent, 0.0) if columns.nnz else spent
    of = {stage: float(spent[parts].sum()) if columns.nnz else 0.0 for stage, parts in numbers.items()}
    kept = sorted((s for s in numbers if of[s] >= LEAST_OF_TIME * total), key=lambda s: (-of[s], s))
    kept = kept[:MOST_STAGES]
    found: list[Floats] = []
    for stage in kept:
        ms = np.zeros(len(place))
        for number in numbers[stage]:
            cells = slice(columns.indptr[number], columns.indptr[number + 1])
            ms[place[columns.indices[cells]]] += columns.data[cells]
        found.append(ms)
    return kept, found


def _instances(requests: pl.DataFrame, evidence: Evidence | None) -> list[Group]:
    whole = evidence is not None and not evidence.chosen and len(evidence) == len(requests)
    found: list[Group] = []
    behind: set[str] = set()
    if evidence is not None and whole:
        for name in sorted(one for one in evidence.facts.columns if one.startswith("instance:")):
            service = name.removeprefix("instance:")
            behind.add(service)
            found += _groups(evidence.facts[name], service)
    for service in requests["service"].unique().sort():
        if service not in behind:
            mine = requests.select(
                pl.when(pl.col("service") == service).then("instance").alias("instance")
            ).to_series()
            found += _groups(mine, service)
    return found


def _groups(names: pl.Series, service: str, *, of_version: bool = False) -> list[Group]:
    """Return who serves most, where there are several."""
    counts = names.rename("name").drop_nulls().value_counts(name="n").filter(pl.col("name") != "")
    if len(counts) < 2:
        return []
    chosen = counts.sort(["n", "name"], descending=[True, False]).head(MOST_GROUPS)["name"].to_list()
    return [
        Group(
            service,
            "" if of_version else name,
            name if of_version else "",
            (names == name).fill_null(value=False).to_numpy(),
        )
        for name in chosen
    ]
