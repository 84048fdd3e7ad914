"""One at a time: an event loop that a synchronous call holds, and a lock that requests queue for.

Owns event_loop_blocked and lock_contention. Both show in spans that never overlap although their requests do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import EVENTLOOP_LAG_MS
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import Contrast, contrast
from tailscope_analyzer._causes._stated import FELT, claims_of_losses
from tailscope_analyzer._evidence._together import covered_until, merge

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._causes._stated import Loss
    from tailscope_analyzer._evidence import Evidence

INFERENCE: Final = r"^inference(\.|$)"
LOCK_KEYS: Final = ("lock.wait_ms", "mutex.wait_ms", "gil.wait_ms")
LEAST_WAITING: Final = 8
COVERED: Final = 0.8
"""Of a wait: so much of it another request's work must fill before that is surely what it waited for."""
PARTLY_COVERED: Final = 0.3
"""Where requests are missing (a sample of them is kept) what is there fills less; it is said as possible."""
OVERLAP: Final = 0.05
"""Of the time of all spans: clocks and hand-over blur the edges of what runs one at a time."""
SOON: Final = 0.2
"""Of the usual length: spans that end so soon after another one were not waiting for it."""
SELDOM: Final = 0.1
"""Share of spans that may end so soon; of independent ones every fifth does."""


@dataclass(frozen=True, slots=True)
class _Waits:
    """Hold how long each request waited before its first stage on a server, and what of it others filled."""

    wait_ms: Floats
    filled_ms: Floats
    worked_ms: Floats
    """Work done meanwhile: more than filled where two ran at once."""


def _event_loop(evidence: Evidence) -> list[Claim]:
    def say(loss: Loss, struck: int) -> str:
        return f"The event loop of {loss.service} is late: {struck:,} requests state its lag."

    stated = claims_of_losses(evidence, (EVENTLOOP_LAG_MS,), "event_loop_blocked", say)
    return stated or _serial_services(evidence)


def _serial_services(evidence: Evidence) -> list[Claim]:
    claims: list[Claim] = []
    services = evidence.spans.filter(pl.col("stage").str.contains(INFERENCE))["service"].unique()
    for service in services.sort():
        columns = [
            at
            for at in evidence.columns(service=str(service), stage="other")
            if evidence.parts[at].category in ("untraced", "self")
        ]
        waits = _waits(evidence, str(service))
        if not columns:
            continue
        spread, ms = claim_of(evidence, columns, waits.filled_ms)
        struck = ms.sum(axis=1) > FELT * evidence.excess_ms
        covered = waits.filled_ms[struck] / np.maximum(waits.wait_ms[struck], 1e-9)
        at_once = waits.worked_ms[struck].sum() > (1 + OVERLAP) * waits.filled_ms[struck].sum()
        if struck.sum() < LEAST_WAITING or at_once or float(np.median(covered)) < PARTLY_COVERED:
            continue
        claims.append(
            Claim(
                cause="event_loop_blocked",
                columns=spread,
                ms=np.where(struck[:, None], ms, 0.0),
                support="inferred",
                confidence="likely" if float(np.median(covered)) >= COVERED else "possible",
                summary=f"Requests reach {service} and wait before their first stage while the inference "
                "of others "
                "runs, one at a time: a synchronous call seems to block the event loop.",
                proofs=(
                    Proof(
                        f"{int(struck.sum()):,} requests wait "
                        f"{float(np.median(waits.wait_ms[struck])):,.0f} ms "
                        f"(median) before their first stage; inference of other requests fills "
                        f"{float(np.median(covered)):.0%} of that, and no two of them overlap.",
                        "select r.trace_id, r.duration_ms, min(s.start_unix_nano) filter (s.stage is not "
                        "null) "
                        "- min(s.start_unix_nano) as waited_ns from requests as r join spans as s "
                        "on s.trace_id = r.trace_id group by r.trace_id, r.duration_ms "
                        "order by waited_ns desc nulls last limit 100",
                    ),
                ),
                # Each of them would have started beside another one at least every second time.
                p_value=0.5 ** int(struck.sum()),
                rank=20,
                struck=struck,
            )
        )
    return claims


def _waits(evidence: Evidence, service: str) -> _Waits:
    """Return the waits at a service before the first stage, and what of them inference there filled."""
    mine = evidence.spans.filter((pl.col("service") == service) & (pl.col("request") >= 0))
    # Sub-stages lie inside their stage: counted with it, one request would seem to run twice at once.
    above = evidence.spans["stage"].gather(pl.Series(np.maximum(mine["parent"].to_numpy(), 0)))
    nested = (mine["parent"] >= 0) & above.str.contains(INFERENCE).fill_null(value=False)
    work = mine.filter(pl.col("stage").str.contains(INFERENCE) & ~nested)
    wait, filled, worked = (np.zeros(len(evidence)) for _ in range(3))
    for server in work["server"].unique().sort():
        running = work.filter(pl.col("server") == server).sort("start_ns")
        starts, ends = running["start_ns"].to_numpy(), running["end_ns"].to_numpy()
        begins, stops = merge(starts, ends)
        there = (
            mine.filter(pl.col("server") == server)
            .group_by("request")
            .agg(
                came=pl.col("start_ns").min(),
                begun=pl.col("start_ns").filter(pl.col("within").is_not_null()).min(),
            )
            .drop_nulls()
        )
        row = there["request"].to_numpy()
        came, begun = there["came"].to_numpy(), there["begun"].to_numpy()
        wait[row] = (begun - came) / 1e6
        filled[row] = (covered_until(begins, stops, begun) - covered_until(begins, stops, came)) / 1e6
        worked[row] = (_worked_until(starts, ends, begun) - _worked_until(starts, ends, came)) / 1e6
    return _Waits(wait, filled, worked)


def _worked_until(starts: Ints, ends: Ints, until: Ints) -> Ints:
    """Return how much work of intervals that may overlap lies before each moment."""
    origin = int(starts[0])
    since: Ints = until - origin

    def passed(moments: Ints) -> Ints:
        ordered: Ints = np.sort(moments - origin)
        count = np.searchsorted(ordered, since, side="right")
        so_far: Ints = np.r_[0, np.cumsum(ordered)]
        total: Ints = count * since - so_far[count]
        return total

    return passed(starts) - passed(ends)


def _locks(evidence: Evidence) -> list[Claim]:
    def say(loss: Loss, struck: int) -> str:
        return f"Requests wait for a lock in {loss.service}: {struck:,} state how long."

    stated = claims_of_losses(evidence, LOCK_KEYS, "lock_contention", say)
    return stated or _convoys(evidence)


def _convoys(evidence: Evidence) -> list[Claim]:
    """Find stages on the processor that take longer the more requests are in them, and end one by one."""
    stages = sorted(
        {
            (part.service, part.stage)
            for part in evidence.parts
            if part.category == "self"
            and part.stage not in ("other", "queue", "network", "coldstart")
            and not part.stage.startswith("inference")
        }
    )
    claims: list[Claim] = []
    for service, stage in stages:
        columns = evidence.columns(service=service, stage=stage, category="self")
        if evidence.excess(evidence.ms(columns)) < FELT * evidence.excess_ms:
            continue
        inside = _inside(evidence, service, stage)
        if inside is None:
            continue
        compared = contrast(evidence.ms(columns), inside >= 1, inside == 0, tests=len(stages))
        if compared is None or not _one_by_one(evidence, service, stage, compared):
            continue
        spread, ms = claim_of(evidence, columns, compared.ms)
        claims.append(_convoy(service, stage, spread, ms, compared))
    return claims


def _convoy(service: str, stage: str, columns: tuple[int, ...], ms: Floats, compared: Contrast) -> Claim:
    return Claim(
        cause="lock_contention",
        columns=columns,
        ms=ms,
        support="inferred",
        confidence="likely",
        summary=f"{stage} of {service} lets one request through at a time: it takes "
        f"{compared.struck_ms:,.1f} ms "
        f"with others in it, {compared.others_ms:,.1f} ms alone. A lock seems to be held.",
        proofs=(
            Proof(
                f"{compared.struck:,} requests met others in {stage}; their ends follow one by one.",
                "select trace_id, instance, start_time, duration_ms from spans where service = "
                f"{quoted(service)} "
                f"and stage = {quoted(stage)} order by duration_ms desc limit 100",
            ),
        ),
        p_value=compared.p_value,
        rank=35,
        struck=compared.ms > 0,
    )


def _stage_spans(evidence: Evidence, service: str, stage: str) -> pl.DataFrame:
    return evidence.spans.filter(
        (pl.col("service") == service) & (pl.col("stage") == stage) & (pl.col("request") >= 0)
    ).sort("server", "start_ns", "span_id")


def _inside(evidence: Evidence, service: str, stage: str) -> Floats | None:
    """Return how many others were in the stage, there, when each request entered; NaN where it did not."""
    spans = _stage_spans(evidence, service, stage)
    if not len(spans):
        return None
    found = np.full(len(evidence), np.nan)
    for server in spans["server"].unique(maintain_order=True):
        mine = spans.filter(pl.col("server") == server)
        start, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        gone = np.searchsorted(np.sort(end), start, side="right")
        found[mine["request"].to_numpy()] = np.maximum(np.arange(len(mine)) - gone, 0)
    return found


def _one_by_one(evidence: Evidence, service: str, stage: str, compared: Contrast) -> bool:
    """Tell whether spans that met others end well apart: who waits for a lock still has its work to do."""
    spans = _stage_spans(evidence, service, stage)
    apart: list[Ints] = []
    for server in spans["server"].unique(maintain_order=True):
        mine = spans.filter(pl.col("server") == server).sort("end_ns")
        start, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        met = start[1:] < end[:-1]  # the one that ended before it was still inside when it came
        apart.append(np.diff(end)[met])
    gaps = np.concatenate(apart) / 1e6
    return len(gaps) >= LEAST_WAITING and float((gaps < SOON * compared.others_ms).mean()) <= SELDOM


DETECTORS: Final = (
    Detector(
        cause="event_loop_blocked",
        looks_for="`eventloop.lag_ms`; or a wait before the first stage that other requests' inference "
        "fills, where "
        "no two inferences of a process overlap.",
        not_confused_with=(
            ("network_delay", "the wait is inside the server's own span"),
            ("gpu_contention", "inference spans overlap and stretch"),
            ("queueing", "the server has a queue and says so"),
        ),
        fixes=(
            Fix(
                "Do not call the model in an async handler: use def, a thread pool or a worker process.",
                "https://github.com/fastapi/fastapi/issues/2148",
            ),
            Fix("Give inference its own pool, apart from the web server's.", GUIDE_A),
        ),
        detect=_event_loop,
    ),
    Detector(
        cause="lock_contention",
        looks_for="`lock.wait_ms`; or a stage that takes longer the more requests are in it and lets them "
        "out one by "
        "one.",
        not_confused_with=(
            ("cpu_contention", "all stages stretch, and requests end together"),
            ("queueing", "the server has a queue, or it is inference that runs one at a time"),
        ),
        fixes=(
            Fix(
                "Find contention with a load test; hold the lock for less, or make one per worker.",
                GUIDE_A,
            ),
            Fix(
                "In Python: run the stage in processes, or in code that lets go of the interpreter lock.",
                "https://docs.python.org/3/library/threading.html",
            ),
        ),
        detect=_locks,
    ),
)
