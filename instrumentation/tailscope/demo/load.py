"""The demo's load: sends the planned requests at their times, whether or not earlier ones were answered.

Owns an open loop with a bound on what is in flight, in a process of its own. Prints one JSON object a line on
stdout (`start`, `progress`, `end`) for whoever shows the progress; is not traced, so that what it measures is
a check from outside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field

import httpx
import numpy as np

from tailscope.demo import _arrivals
from tailscope.demo._text import Corpus
from tailscope.demo._wire import BULK_LANE, ONLINE_LANE, RANKER_PORT, RankRequest

IN_FLIGHT_LIMIT = 128
TIMEOUT_S = 30.0
WARM_UP = 6
PROGRESS_S = 0.2


@dataclass(slots=True)
class Outcome:
    """What the client saw, in the order of answers."""

    latencies_ms: list[float] = field(default_factory=list[float])
    failed: int = 0
    held_back: int = 0
    first_failure: str = ""

    @property
    def done(self) -> int:
        """How many requests have been answered or have failed."""
        return len(self.latencies_ms) + self.failed


@dataclass(frozen=True, slots=True)
class Planned:
    """One request with its body made."""

    arrival: _arrivals.Arrival
    body: bytes


class Load:
    """Send requests to `targets`, one address for each instance."""

    def __init__(self, targets: list[str], client: httpx.AsyncClient) -> None:
        self.outcome = Outcome()
        self._targets = targets
        self._client = client
        self._slots = asyncio.Semaphore(IN_FLIGHT_LIMIT)

    async def run(self, planned: list[Planned]) -> None:
        """Send each request at its time and wait for all answers."""
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for request in planned:
                await asyncio.sleep(max(0.0, start + request.arrival.at_s - time.perf_counter()))
                self.outcome.held_back += self._slots.locked()
                await self._slots.acquire()
                group.create_task(self._send(request))

    async def _send(self, request: Planned) -> None:
        start = time.perf_counter()
        target = self._targets[request.arrival.instance % len(self._targets)]
        try:
            answer = await self._client.post(
                f"{target}/v1/rank", content=request.body, headers={"x-account": request.arrival.account}
            )
            answer.raise_for_status()
        except httpx.HTTPError as error:
            self.outcome.failed += 1
            self.outcome.first_failure = self.outcome.first_failure or f"{target}: {error!r}"
        else:
            self.outcome.latencies_ms.append((time.perf_counter() - start) * 1e3)
        finally:
            self._slots.release()


def make_requests(arrivals: list[_arrivals.Arrival], seed: int) -> list[Planned]:
    """Give each arrival its body; documents come from one pool, so that 45 MB of JSON take a second."""
    pool = Corpus(seed).documents(2 * max(arrival.documents for arrival in arrivals))
    rng = np.random.default_rng(seed)

    def body(arrival: _arrivals.Arrival) -> bytes:
        first = int(rng.integers(0, len(pool) - arrival.documents))
        documents = pool[first : first + arrival.documents]
        request: RankRequest = {
            "query": " ".join(documents[0].split()[:8]),
            "documents": documents,
            "lane": BULK_LANE if arrival.bulk else ONLINE_LANE,
        }
        return json.dumps(request).encode()

    return [Planned(arrival, body(arrival)) for arrival in arrivals]


def say(event: str, **values: float | str) -> None:
    """Print one line for the parent process."""
    print(json.dumps({"event": event, **values}), flush=True)  # noqa: T201


async def drive(targets: list[str], arrivals: list[_arrivals.Arrival], seed: int) -> Outcome:
    """Warm each instance up, then run the plan and report on it."""
    planned = make_requests(arrivals, seed)
    limits = httpx.Limits(max_connections=IN_FLIGHT_LIMIT, max_keepalive_connections=IN_FLIGHT_LIMIT)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
        await warm_up(targets, client, seed)
        say("start", unix=time.time(), seconds=arrivals[-1].at_s)
        load = Load(targets, client)
        run = asyncio.create_task(load.run(planned))
        while not run.done():
            await asyncio.wait([run], timeout=PROGRESS_S)
            say("progress", done=load.outcome.done, failed=load.outcome.failed)
        await run
        return load.outcome


async def warm_up(targets: list[str], client: httpx.AsyncClient, seed: int) -> None:
    """Send a few ordinary requests at once to each instance, before the clock starts."""
    arrivals = [
        _arrivals.Arrival(
            at_s=0.0, instance=i, account="near-1", documents=_arrivals.DOCUMENTS_MEDIAN, bulk=False
        )
        for i in range(len(targets))
    ]
    warm = Load(targets, client)
    for _ in range(WARM_UP):
        await warm.run(make_requests(arrivals, seed))
    if warm.outcome.failed:
        raise ConnectionError(f"no answer while warming up: {warm.outcome.first_failure}")


def main(argv: list[str]) -> int:
    """Run the load once and return 0 when every request was answered with 200."""
    parser = argparse.ArgumentParser(
        prog="python -m tailscope.demo.load", description="The load of the demo."
    )
    parser.add_argument(
        "--target", action="append", metavar="URL", help="one ranker instance; the third is the slow one"
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=_arrivals.RATE, help="requests a second on average")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    targets = options.target or [f"http://127.0.0.1:{RANKER_PORT}"]
    arrivals = _arrivals.plan(options.requests, rate=options.rate, seed=options.seed)
    try:
        outcome = asyncio.run(drive(targets, arrivals, options.seed))
    except ConnectionError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        return 130
    p50, p95, p99 = np.quantile(outcome.latencies_ms or [0.0], [0.5, 0.95, 0.99]).tolist()
    counts = asdict(outcome)
    del counts["latencies_ms"]
    say("end", answered=len(outcome.latencies_ms), p50_ms=p50, p95_ms=p95, p99_ms=p99, **counts)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
