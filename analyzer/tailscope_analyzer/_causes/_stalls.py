"""A whole process that stands still, for a reason that nothing states.

Owns process_stall. A stall does what a slow stage cannot: whatever the process is doing is late, a request
that only arrives as well as one that is computed, and all of them at the same moments. That also tells it
from a slow way to the process, which does not hold up what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import GC_EVENT
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._causes._stated import ELSEWHERE
from tailscope_analyzer._evidence._pieces import ARRIVAL, RETURN, pieces

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._evidence import Evidence

OUTLYING: Final = 8.0
"""Median deviations beyond the median; a normal piece is so long once in 10 million requests."""
OF_EXCESS: Final = 0.2
"""A stall is worth this much of the excess, whatever it strikes: a short stage is as late as a long one."""
QUEUE: Final = "queue"
"""Who waits for a turn is late whenever others are: that is a consequence, and no sign."""
LEAST_ALIKE: Final = 20
"""Pieces of a kind, before a median says what is usual."""
LEAST_STRUCK: Final = 8
LEAST_ELSEWHERE: Final = 3
"""Struck while doing something else than most: the thing that is struck most may be slow by itself."""
LEAST_INSIDE: Final = 2
"""Struck inside the process, not on the way: what is on the way alone says nothing of the process."""
MOST_EACH: Final = 1.5
"""Struck pieces of a struck request, on average: a stall strikes once."""
FAIR: Final = 4.0
"""So many times more or fewer than the time spent there leads to expect; stalls are few."""
MOSTLY: Final = 0.5
LEAST_FAIR: Final = 0.05
LEAST_SPREAD: Final = 0.1
"""Of the strikes inside; normal pieces are hardly ever so late, and a tenth is no chance."""
LEAST_BESIDE: Final = 5
"""Requests present at the stalls of others; with fewer, nobody can tell a stall from a slow request."""
DRAWS: Final = 1_999
"""Of the same pieces at other times: the least p-value is one in 2,000."""
MOST_STRUCK: Final = 200
"""Struck pieces of a server that are held against other times: more would not tell more."""
SEED: Final = 20_250_101


def _stalls(evidence: Evidence) -> list[Claim]:
    claims = (_stall_of(evidence, service) for service in sorted({part.service for part in evidence.parts}))
    return [claim for claim in claims if claim]


def _stall_of(evidence: Evidence, service: str) -> Claim | None:
    every = _beyond_usual(pieces(evidence, service))
    struck = every.filter(
        pl.col("is_out") & (pl.col("beyond_ms") > OF_EXCESS * evidence.excess_ms) & (pl.col("doing") != QUEUE)
    )
    late = struck.group_by("request", maintain_order=True).agg(pl.col("beyond_ms").sum(), pl.len())
    if not LEAST_STRUCK <= len(late) <= len(evidence) / 2 or len(struck) > MOST_EACH * len(late):
        return None
    if not _strikes_anything(every, struck):
        return None
    met = _meet(every, struck)
    if met.beside < LEAST_BESIDE:
        return None
    lost = np.zeros(len(evidence))
    lost[late["request"].to_numpy()] = late["beyond_ms"].to_numpy()
    spread, ms = claim_of(evidence, _columns(evidence, service), lost)
    return _claim(service, spread, ms, struck, met, is_collector=_collects_then(evidence, struck))


def _collects_then(evidence: Evidence, struck: pl.DataFrame) -> bool:
    """Tell whether gc events lie in most of what was struck in the process: who only waits has none."""
    inside = struck.filter(~pl.col("doing").is_in([ARRIVAL, RETURN])).sort("start_ns", "request")
    proven = 0
    for server in inside["server"].unique().sort():
        ended = evidence.events.filter((pl.col("name") == GC_EVENT) & (pl.col("server") == server))
        times = np.sort(ended["time_ns"].to_numpy())
        mine = inside.filter(pl.col("server") == server)
        until = np.searchsorted(times, mine["end_ns"].to_numpy(), side="right")
        proven += int((until > np.searchsorted(times, mine["start_ns"].to_numpy(), side="left")).sum())
    return proven > MOSTLY * len(inside)


def _columns(evidence: Evidence, service: str) -> list[int]:
    """Return where a process loses time: in all that it does itself, and on the way in and out."""
    inside = [
        at
        for at in evidence.columns(service=service)
        if evidence.parts[at].category not in (*ELSEWHERE, "gc", "queue")
    ]
    ways = [at for at in evidence.columns(category="gap") if evidence.parts[at].callee == service]
    return inside + ways


def _beyond_usual(every: pl.DataFrame) -> pl.DataFrame:
    """Add what each piece takes beyond those of its kind, and whether that is out of all proportion."""
    took = (pl.col("end_ns") - pl.col("start_ns")) / 1e6
    alike = (
        every.group_by("kind")
        .agg(usual_ms=took.median(), deviation_ms=(took - took.median()).abs().median(), alike=pl.len())
        .filter(pl.col("alike") >= LEAST_ALIKE)
    )
    known = every.join(alike, on="kind", how="inner", maintain_order="left")
    beyond = took - pl.col("usual_ms")
    return known.with_columns(beyond_ms=beyond, is_out=beyond > OUTLYING * pl.col("deviation_ms"))


def _strikes_anything(every: pl.DataFrame, struck: pl.DataFrame) -> bool:
    """Tell whether pieces are struck as often as they are there to be struck, whatever is done in them."""
    hits = struck.group_by("doing").agg(hits=pl.len())
    found = every.group_by("doing").agg(exposed=pl.col("usual_ms").sum(), pieces=pl.len())
    both = found.join(hits, on="doing", how="left").fill_null(0).sort("hits", "doing", descending=True)
    inside = both.filter(~pl.col("doing").is_in([ARRIVAL, RETURN]))
    at_work = int(inside["hits"].sum())
    if int(both["hits"][1:].sum()) < LEAST_ELSEWHERE or at_work < LEAST_INSIDE:
        return False
    exposed_ms = float(inside["exposed"].sum())
    elsewhere, fair = int(inside["hits"][1:].sum()), 1.0 - float(inside["exposed"][0]) / exposed_ms
    # What ends on a GPU during a stall is late in what follows it: one stage may have most of the strikes.
    least = min(fair / FAIR, LEAST_SPREAD)
    if not least * at_work - 1 <= elsewhere <= FAIR * max(fair, LEAST_FAIR) * at_work + 1:
        return False
    # Who is inside is struck if a stall begins then; who arrives, all the time that it lasts, if seen at all.
    ways = both.filter(pl.col("doing") == ARRIVAL)
    arrived, came = int(ways["hits"].sum()), int(every.select("request", "server").n_unique())
    expected = at_work * came * float(struck["beyond_ms"].to_numpy().mean()) / exposed_ms
    return arrived <= FAIR * expected


@dataclass(frozen=True, slots=True)
class _Met:
    """Say who was present in the middle of struck pieces."""

    beside: int
    also: int
    """Of those beside, who were struck at that moment too."""
    expected: float
    """How many of those beside are struck by chance: requests that are long are met more often."""
    p_value: float


def _meet(every: pl.DataFrame, struck: pl.DataFrame) -> _Met:
    """Count who is present beside the struck, and hold it against strikes that come independently."""
    present = every.group_by("server", "request").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    present = present.sort("server", "start_ns", "request")
    origin = int(present["start_ns"].to_numpy().min())
    rng = np.random.default_rng(SEED)
    chance = _spent(struck) / max(_spent(present), 1)
    beside = also = 0
    surprise, drawn = 0.0, np.zeros(DRAWS)
    for server in struck["server"].unique().sort():
        late = struck.filter(pl.col("server") == server).sort("start_ns", "request")
        late = late[np.linspace(0, len(late) - 1, min(len(late), MOST_STRUCK)).astype(np.int64)]
        start, end = _seconds(present.filter(pl.col("server") == server), origin)
        late_start, late_end = _seconds(late, origin)
        moments = (late_start + late_end) / 2
        everyone = int(_present(start, end, moments).sum())
        also += int(_present(late_start, late_end, moments).sum()) - len(late)  # each finds itself
        beside += everyone - len(late)
        surprise += 2 * float(_overlaps(late_start[None], late_end[None])[0]) - chance * everyone
        # The same pieces in requests that came at other times: bursts of arrivals stay bursts.
        came = start[np.searchsorted(start, late_start, side="right") - 1]
        elsewhere = start[rng.integers(0, len(start), (DRAWS, len(late)))]
        begins, ends = elsewhere + (late_start - came), elsewhere + (late_end - came)
        there = _present(start, end, (begins + ends).ravel() / 2).reshape(begins.shape).sum(axis=1)
        drawn += 2 * _overlaps(begins, ends) - chance * there
    return _Met(beside, also, chance * beside, float((1 + (drawn >= surprise).sum()) / (1 + DRAWS)))


def _spent(frame: pl.DataFrame) -> int:
    return int((frame["end_ns"] - frame["start_ns"]).sum())


def _seconds(frame: pl.DataFrame, origin: int) -> tuple[Floats, Floats]:
    start, end = ((frame[name].to_numpy() - origin) / 1e9 for name in ("start_ns", "end_ns"))
    return start, end


def _present(start: Floats, end: Floats, moments: Floats) -> Ints:
    """Return how many intervals each moment lies in, ends included."""
    begun = np.searchsorted(np.sort(start), moments, side="right")
    return begun - np.searchsorted(np.sort(end), moments, side="left")


def _overlaps(start: Floats, end: Floats) -> Ints:
    """Return for each row of intervals how many pairs of them overlap."""
    k = start.shape[1]
    ends = np.argsort(np.concatenate([start, end], axis=1), axis=1, kind="stable") >= k
    open_after = np.cumsum(1 - 2 * ends.astype(np.int64), axis=1)
    pairs: Ints = np.where(ends, open_after, 0).sum(axis=1)
    return pairs


def _claim(
    service: str, columns: tuple[int, ...], ms: Floats, struck: pl.DataFrame, met: _Met, *, is_collector: bool
) -> Claim:
    why = "A collector, a CPU limit, memory or a disk can do that; nothing recorded says which."
    if is_collector:
        why = "Garbage collection is recorded at most of these moments, if not by those that wait outside."
    return Claim(
        cause="gc_pause" if is_collector else "process_stall",
        columns=columns,
        ms=ms,
        support="inferred",
        confidence="likely",
        summary=f"All of {service} stands still at times: whatever it is doing is late, in several requests "
        f"at once. {why}",
        proofs=(
            Proof(
                f"{struck['request'].n_unique():,} requests are late once each, doing "
                f"{struck['doing'].n_unique()} different things; of {met.beside:,} others present at these "
                f"moments {met.also:,} were late too, where {met.expected:,.0f} would be by chance.",
                "select date_trunc('second', start_time) as second, count(*) as requests, "
                "max(duration_ms) as slowest_ms from requests group by second order by slowest_ms desc "
                "limit 100",
            ),
        ),
        p_value=met.p_value,
        rank=30,
    )


DETECTORS: Final = (
    Detector(
        cause="process_stall",
        looks_for="requests that are late once each, whatever the process does for them (arriving counts), "
        "together with the others that are there at that moment.",
        not_confused_with=(
            ("gc_pause", "that is said only where gc events prove it"),
            (
                "cpu_throttling",
                "that is said only where a quota is stated, or between neighbours of one host",
            ),
            ("network_delay", "requests on the way are late, those inside are not"),
            ("cpu_contention", "stretches every stage of a request, not one"),
            ("gpu_contention", "strikes only stages that use the GPU"),
        ),
        fixes=(
            Fix("Look at the host then: CPU throttling, steal, memory, disk; send gc events.", GUIDE_A),
            Fix(
                "If it is Python's collector: gc.freeze() after warm-up.",
                "https://github.com/sgl-project/sglang/issues/30596",
            ),
        ),
        detect=_stalls,
    ),
)
