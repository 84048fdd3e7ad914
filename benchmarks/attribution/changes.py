"""How right changes over time are: still windows, of which nothing may be said, and moves at known moments.

usage: by `python -m benchmarks.attribution --only changes`, which prints the rows.

Still: heavy tails, bursts, queues near their limit, a day's load, a mix of kinds of requests; 2,000 requests
each, three instances and two versions. Moves: one stage takes 1.3 to 3 times as long from a random moment on,
for all requests, on one instance or in one version, or with a version that is rolled out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._changes import find_changes
from tailscope_analyzer._parts import split_requests
from tests.analyzer.moves import STAGES, STILL, Move, window

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tailscope_analyzer._change_rows import ChangeRow
    from tailscope_analyzer._traces import Traces
    from tests.analyzer.moves import Moved

Row = tuple[str, str, str, int]
REQUESTS: Final = 2_000
WINDOWS: Final = 40
"""Of each kind."""
MOST_SAID: Final = 0.05
LEAST_FOUND: Final = 0.9
MANY: Final = 1_000_000
MOST_SECONDS: Final = 1.0


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Return what was measured, its value, its bar and n."""
    del args
    yield _still_row()
    yield from _moved_rows()
    yield _speed_row()


def changes_of(traces: Traces) -> tuple[ChangeRow, ...]:
    """Return the changes of a window, as a report has them."""
    return find_changes(traces, split_requests(traces), percentile=0.99).rows


def _still_row() -> Row:
    said = {
        still: sum(bool(changes_of(window(seed, REQUESTS, still=still).traces)) for seed in range(WINDOWS))
        for still in STILL
    }
    n = WINDOWS * len(STILL)
    share = sum(said.values()) / n
    told = ", ".join(f"{still} {count}" for still, count in said.items() if count)
    verdict = "" if share <= MOST_SAID else " missed"
    return "still windows: any change claimed", f"{share:.1%} ({told or 'none'}){verdict}", "<= 5 %", n


def _moved_rows() -> Iterator[Row]:
    kinds: tuple[Moved, ...] = ("stage", "instance", "version", "rollout")
    for kind in kinds:
        found = inside = 0
        for seed in range(WINDOWS):
            move = _drawn(kind, seed)
            made = window(seed, REQUESTS, move=move)
            right = [row for row in changes_of(made.traces) if _names(row, move)]
            found += bool(right)
            inside += any(_holds(row, made.at_ns) for row in right)
        verdict = "" if found >= LEAST_FOUND * WINDOWS else " missed"
        yield f"moves of one {kind}: found and named", f"{found} of {WINDOWS}{verdict}", ">= 90 %", WINDOWS
        verdict = "" if inside >= LEAST_FOUND * found else " missed"
        yield (
            f"moves of one {kind}: moment in its interval",
            f"{inside} of {found}{verdict}",
            ">= 90 %",
            found,
        )


def _drawn(kind: Moved, seed: int) -> Move:
    rng = np.random.default_rng([seed, 12])
    names = {"stage": "", "instance": "pod-1", "version": "v1", "rollout": "v2"}
    return Move(
        kind,
        stage=list(STAGES)[int(rng.integers(len(STAGES)))],
        factor=1.3 * (3.0 / 1.3) ** float(rng.random()),
        at=float(rng.uniform(0.15, 0.85)),
        name=names[kind],
    )


def _names(row: ChangeRow, move: Move) -> bool:
    instance = move.name if move.kind == "instance" else ""
    version = move.name if move.kind in {"version", "rollout"} else ""
    return (row.move.stage, row.move.instance, row.move.version) == (move.stage, instance, version)


def _holds(row: ChangeRow, at_ns: int) -> bool:
    moment = np.datetime64(at_ns // 1000, "us")
    first, last = (np.datetime64(end.removesuffix("Z"), "us") for end in row.ci95_at)
    return bool(first <= moment <= last)


def _speed_row() -> Row:
    made = window(1, MANY, move=Move("instance", factor=1.5))
    split = split_requests(made.traces)
    started = time.process_time()
    found = find_changes(made.traces, split, percentile=0.99).rows
    took_s = time.process_time() - started
    verdict = "" if took_s <= MOST_SECONDS and found else " missed"
    return "changes of a million requests, processor time", f"{took_s:.2f} s{verdict}", "<= 1 s", MANY
