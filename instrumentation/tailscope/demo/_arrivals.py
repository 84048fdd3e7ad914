"""When requests come and what each asks for: bursts, long-tailed sizes, and the few that meet a fault.

Owns the plan of a run, a pure function of its seed. Sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 40.0
"""Requests a second: half of two cores, with services, collector and load on them."""

BURST_SHAPE = 0.6
"""Gaps are gamma-distributed with this shape: coefficient of variation 1.3, where Poisson has 1."""

WAVE_REQUESTS = 40
WAVE_SIGMA = 0.4
"""The rate itself wanders: every `WAVE_REQUESTS` requests it is redrawn, log-normal."""

DOCUMENTS_MEDIAN = 20
DOCUMENTS_SIGMA = 0.35
BIG_SIGMA = 0.25
BIG_DOCUMENTS = 6500
ACCOUNTS_OF_A_KIND = 200
BULK_ROW = 6
INSTANCE_OF = {"slow_instance": 2, "bulk_lane": 0}
"""Requests that the plan sends to one instance; the others share 0 and 1."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of all requests that meets each fault; a request meets one at most."""

    far_account: float = 0.02
    bulk_lane: float = 0.02
    slow_instance: float = 0.02
    big_body: float = 0.02


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come, `at_s` seconds after the start."""

    at_s: float
    instance: int
    account: str
    documents: int
    bulk: bool


def plan(requests: int, *, rate: float, seed: int, shares: Shares | None = None) -> list[Arrival]:
    """Return the requests in order of arrival, `rate` a second on average.

    Instances 0 and 1 share the ordinary traffic; instance 2 is the slow one.
    """
    shares = shares or Shares()
    rng = np.random.default_rng(seed)
    at_s = arrival_times(requests, rate=rate, rng=rng)
    documents = np.clip(rng.lognormal(np.log(DOCUMENTS_MEDIAN), DOCUMENTS_SIGMA, requests), 4, 64)
    big = np.clip(rng.lognormal(np.log(BIG_DOCUMENTS), BIG_SIGMA, requests), 3000, 13_000)
    instances = rng.integers(0, 2, requests)
    accounts = rng.integers(0, ACCOUNTS_OF_A_KIND, requests)
    fault = assign_faults(requests, shares=shares, rng=rng)
    return [
        Arrival(
            at_s=float(at_s[i]),
            instance=INSTANCE_OF.get(fault[i], int(instances[i])),
            account=f"{'far' if fault[i] == 'far_account' else 'near'}-{accounts[i]}",
            documents=int(big[i] if fault[i] == "big_body" else documents[i]),
            bulk=fault[i] == "bulk_lane",
        )
        for i in range(requests)
    ]


def arrival_times(requests: int, *, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return ascending seconds; the last one is `requests / rate`."""
    gaps = rng.gamma(BURST_SHAPE, 1 / BURST_SHAPE, requests)
    waves = rng.lognormal(0, WAVE_SIGMA, requests // WAVE_REQUESTS + 1)
    times: NDArray[np.float64] = np.cumsum(gaps * np.repeat(waves, WAVE_REQUESTS)[:requests])
    times *= requests / rate / times[-1]
    return times


def assign_faults(requests: int, *, shares: Shares, rng: np.random.Generator) -> list[str]:
    """Return for each request the field of `Shares` it falls under, or ''; counts are exact, 1 at least.

    Bulk requests come in rows of `BULK_ROW`, so that some join a window that others have opened.
    """
    fault = [""] * requests
    order: list[int] = rng.permutation(requests).tolist()
    rows = [i for start in order for i in range(start, min(start + BULK_ROW, requests))]
    for name, candidates in (
        ("bulk_lane", rows),
        ("far_account", order),
        ("slow_instance", order),
        ("big_body", order),
    ):
        free = (i for i in candidates if not fault[i])
        for i in islice(free, max(1, round(requests * getattr(shares, name)))):
            fault[i] = name
    return fault
