"""Requests that wait for others to share a batch with, who do not come.

Owns batch_window. A window that is stated is direct evidence; else waits that pile up at one length, in
batches that have room left, give it away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope.conventions import BATCH_MAX_DELAY_MS, BATCH_MAX_SIZE
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._causes._chance import at_least
from tailscope_analyzer._causes._queues import queue_columns, sql_of_queues

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

SLACK: Final = 1.1
"""A batcher fires a little after its window."""
MOSTLY: Final = 0.5
LEAST_SAMPLE: Final = 40
"""Waits that show where they end."""
LONGEST: Final = 0.99
"""The quantile of waits taken for the window: of a hundred, one may be late for another reason."""
NEAR: Final = 0.05
"""Waits this close to the longest are at the window's end. Waits for a busy server thin out towards the
longest, or are spread evenly at most: no more than this share of them would be so close."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Hold how long batches are held open, and how that is known."""

    ms: Floats
    """Per request; NaN where nobody knows."""
    stated: bool
    p_value: float


def _batch_window(evidence: Evidence) -> list[Claim]:
    stated = evidence.number(BATCH_MAX_DELAY_MS)
    size = np.fmax(evidence.number("request:batch_size"), evidence.number("batch:size"))
    most = evidence.number(BATCH_MAX_SIZE)
    # Where nobody states how full batches are: who comes to an empty server waits for no turn.
    alone = evidence.number("request:inflight") < 1
    claims: list[Claim] = []
    for service, columns in queue_columns(evidence):
        wait = evidence.ms(columns)
        claim = _held(evidence, service, columns, _Window(stated, stated=True, p_value=0.0), size, most)
        if claim is None:
            unknown = ~(np.isfinite(size) & np.isfinite(most))
            window = _window_seen(wait, (size < most) | (unknown & alone), (size < most) | unknown)
            claim = _held(evidence, service, columns, window, size, most) if window else None
        claims += [claim] if claim else []
    return claims


def _window_seen(wait: Floats, has_room: Bools, may_have_room: Bools) -> _Window | None:
    """Return the length at which waits for batches with room left pile up; None where they do not."""
    waits = wait[has_room & (wait > 0)]
    if len(waits) < LEAST_SAMPLE:
        return None
    longest = float(np.quantile(waits, LONGEST))
    near = int((waits >= (1 - NEAR) * longest).sum())
    p_value = at_least(near, len(waits), NEAR + 1 - LONGEST)
    return _Window(np.where(may_have_room, longest, np.nan), stated=False, p_value=p_value)


def _held(
    evidence: Evidence, service: str, columns: list[int], window: _Window, size: Floats, most: Floats
) -> Claim | None:
    """Claim what requests wait within a window; None where the tail does not wait for most of it."""
    wait = evidence.ms(columns)
    has_room = ~(size >= most)  # also where nobody says how full it was
    held: Bools = (window.ms > 0) & has_room & (wait <= SLACK * window.ms)
    long = held & (wait >= MOSTLY * window.ms)
    if not evidence.tail_weight[long].sum() > MOSTLY:
        return None
    # All of the wait: a typical request may be held, too, and the excess is what the tail is held longer.
    within = np.where(held, np.minimum(wait, window.ms), 0.0)
    spread, ms = claim_of(evidence, columns, within, beyond_typical=False)
    window_ms = float(np.nanmedian(window.ms[held]))
    how = "the batch window of" if window.stated else "what looks like a batch window of"
    return Claim(
        cause="batch_window",
        columns=spread,
        ms=ms,
        support="direct" if window.stated else "inferred",
        confidence="confirmed" if window.stated else "likely",
        summary=f"Requests wait in {service} until {how} {window_ms:,.4g} ms is over: their batches do not "
        "fill.",
        proofs=(
            Proof(
                f"{int(long.sum()):,} requests wait for {MOSTLY:.0%} to 100 % of the window, in batches "
                f"{_filled(size[held], most)}.",
                sql_of_queues(service),
            ),
        ),
        p_value=window.p_value,
        rank=10,
        struck=held,
    )


def _filled(size: Floats, most: Floats) -> str:
    """Say how full batches are, as far as anybody tells."""
    told = [
        f"{word} {np.nanmedian(values):g}{rest}"
        for values, word, rest in ((size, "of", " (median)"), (most, "where", " fit"))
        if np.isfinite(values).any()
    ]
    return " ".join(told) or "of an unknown size"


DETECTORS: Final = (
    Detector(
        cause="batch_window",
        looks_for="`batch.max_delay_ms`: most of the tail waits for half to all of it, in batches that are "
        "not full; or, where nobody states it, such waits that end at one length.",
        not_confused_with=(
            ("queueing", "batches are full, and waits grow with the requests in flight"),
            ("head_of_line", "a large request was ahead"),
        ),
        fixes=(
            Fix("Shorten the batch window: 5-10 ms and batches of 1-8 for real time.", GUIDE_A),
            Fix(
                "Let the window end when the server is idle.", "https://github.com/pytorch/serve/issues/2019"
            ),
        ),
        detect=_batch_window,
    ),
)
