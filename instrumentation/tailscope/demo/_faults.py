"""What is wrong on purpose: who meets each fault, how large it was made, and where it must show.

Owns the list. `affected` picks requests by what a user could know of them (attributes, instance,
events), never by their latency; `rows` picks the ledger rows that the fault's milliseconds must land on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.demo._arrivals import BIG_DOCUMENTS, BULK_ROW, DOCUMENTS_MEDIAN
from tailscope.demo._wire import ACCOUNTS, FAR_MS, RANKER, Calibration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.demo._arrivals import Shares

BULK_WINDOW_MS = 250.0
HEAP_ENTRIES = 600_000
COLLECT_EVERY = 60
SLOW_PASSES = 64
BIG_BODY_BYTES = 200_000
INSTANCES = ("ranker-1", "ranker-2", "ranker-3")
SLOW_INSTANCE = INSTANCES[2]


@dataclass(frozen=True, slots=True)
class Rows:
    """A set of ledger rows: those whose columns hold one of the values; an empty tuple takes any."""

    service: tuple[str, ...] = ()
    stage: tuple[str, ...] = ()
    category: tuple[str, ...] = ()

    def sql(self) -> str:
        """Return the condition on the view `stages`."""
        return " and ".join(
            f"{column} in ({', '.join(repr(value) for value in values)})" for column, values in self._wanted()
        )

    def hold(self, row: Mapping[str, object]) -> bool:
        """Say whether a row of the report's `stages` belongs to the set."""
        return all(row[column] in values for column, values in self._wanted())

    def __str__(self) -> str:
        """Return the values as the report spells them."""
        return " ".join(" + ".join(values) for _, values in self._wanted())

    def _wanted(self) -> list[tuple[str, tuple[str, ...]]]:
        named = [("service", self.service), ("stage", self.stage), ("category", self.category)]
        return [(column, values) for column, values in named if values]


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault. `planted_ms` is what it adds to an affected request on an idle machine."""

    name: str
    planted: str
    planted_ms: float
    affected: str
    rows: Rows


def planted_faults(ordinary: Calibration, *, shares: Shares) -> list[Fault]:
    """Return the five faults, sized by what an ordinary instance measured of itself at start-up."""
    near, far = FAR_MS
    return [
        Fault(
            name="slow auth dependency",
            planted=f"{shares.far_account:.0%}: account on a replica, {near:.0f} to {far:.0f} ms away",
            planted_ms=(far - near) / math.log(far / near),
            affected="attributes['tenant'] = 'harbour'",
            rows=Rows(service=(ACCOUNTS,), category=("dependency",)),
        ),
        Fault(
            name="batch window",
            planted=f"{shares.bulk_lane:.0%}: lane 'bulk', {BULK_ROW} in a row wait {BULK_WINDOW_MS:.0f} ms",
            planted_ms=BULK_WINDOW_MS,
            affected="attributes['lane'] = 'bulk'",
            rows=Rows(service=(RANKER,), stage=("queue",)),
        ),
        Fault(
            name="GC pauses",
            planted=f"gc.collect() every {COLLECT_EVERY} requests, {HEAP_ENTRIES:,} entries",
            planted_ms=ordinary["gc_pause_ms"],
            affected="paused",
            rows=Rows(service=(RANKER,), category=("gc",)),
        ),
        Fault(
            name="slow instance",
            planted=f"{shares.slow_instance:.0%}: {SLOW_INSTANCE} runs the model {SLOW_PASSES} times",
            planted_ms=ordinary["inference_ms"] * (SLOW_PASSES - 1),
            affected=f"instance = '{SLOW_INSTANCE}'",
            rows=Rows(service=(RANKER,), stage=("inference",)),
        ),
        Fault(
            name="big payloads",
            planted=f"{shares.big_body:.0%}: {BIG_DOCUMENTS:,} documents instead of {DOCUMENTS_MEDIAN}",
            planted_ms=ordinary["document_ms"] * BIG_DOCUMENTS,
            affected=f"body_bytes > {BIG_BODY_BYTES}",
            rows=Rows(service=(RANKER,), stage=("preprocess", "serialize")),
        ),
    ]
