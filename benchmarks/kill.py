"""SIGKILL under load, again and again, on one data directory: every acknowledged span is there, once.

    python benchmarks/kill.py [--rounds 50] [--calls 32] [--batch 512] [--seal-spans 20000]

A round: `tailscope serve`, a load of `calls` export calls in flight from a process of its own at full speed,
a reader that makes the collector settle what has come, and SIGKILL after a random time; it seals every second
whatever comes in, so that many kills fall into that. Every fourth kill falls into a start. Then the next
start, with no step by hand, and by SQL each request that was acknowledged: all of its spans, none of them
twice. Prints a table, with how many segments were sealed and how many kills left one half-written; exits 1
where a span is missing, doubled, or a request is there by half.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from ingest import EXPORT, Reader, Server, at_quantile, export_body, machine, occurrences

SHORTEST_S: Final = 0.2
"""How long after its first answer a collector lives at least."""

START_KILL_EVERY: Final = 4
START_LIFE_S: Final = (0.05, 1.5)

BODIES: Final = 24
SALT_BYTES: Final = 12
"""A trace id is four bytes of its body's and these: the round in two, and ten random ones of its request."""

OF_ROUND: Final = """
select substr(trace_id, 9) as request, count(*), count(distinct (trace_id, span_id))
from spans where substr(trace_id, 9, 4) = '{}' group by all
"""


class Load:
    """The load client, in a process of its own.

    Waits for a round and a port on stdin; says on stdout what was
    acknowledged, a request a line, and at the end of a round `end`.
    """

    def __init__(self, calls: int, batch: int) -> None:
        self.calls = calls
        rand = random.Random(1)
        self.bodies: list[tuple[bytes, list[int]]] = []
        for _ in range(BODIES):
            body, ids = export_body(batch, rand)
            self.bodies.append((body, [at for trace in ids for at in occurrences(body, trace)]))
        self.guard = threading.Lock()

    def run(self) -> None:
        """Serve rounds until stdin ends."""
        for line in sys.stdin:
            number, port = map(int, line.split())
            self.round(number, port)
            print("end", flush=True)

    def round(self, number: int, port: int) -> None:
        """Send until the collector is gone."""
        import grpc

        options = [("grpc.max_send_message_length", 64 << 20), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            call = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
            threads = [
                threading.Thread(target=self.worker, args=(call, number, seed)) for seed in range(self.calls)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def worker(self, call, number: int, seed: int) -> None:
        """Send one request after the other."""
        import grpc

        rand = random.Random(number << 16 | seed)
        while True:
            body, places = self.bodies[rand.randrange(BODIES)]
            salt = number.to_bytes(2, "big") + rand.randbytes(SALT_BYTES - 2)
            fresh = bytearray(body)
            for place in places:
                fresh[place + 4 : place + 4 + SALT_BYTES] = salt
            try:
                call(bytes(fresh), timeout=30)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    return
                time.sleep(0.05)
                continue
            with self.guard:
                print(salt.hex(), flush=True)


@dataclass(slots=True)
class Tally:
    """What all rounds found."""

    rounds: int = 0
    starts_killed: int = 0
    acknowledged: int = 0
    missing: int = 0
    doubled: int = 0
    halves: int = 0
    ready_s: list[float] = field(default_factory=list)
    segments: int = 0
    half_segments: int = 0
    """Segments that a kill left half-written."""
    stored: int = 0


def kill_round(number: int, args: argparse.Namespace, work: Path, load: subprocess.Popen[str]) -> set[str]:
    """Run one collector to its end and return what it acknowledged."""
    rand = random.Random(args.seed << 16 | number)
    server = Server(work, flags=flags(args))
    reader = Reader(server, query="select count(*) from requests")
    reader.start()
    tell(load.stdin, f"{number} {server.grpc_port}\n")
    acknowledged: set[str] = set()
    timer = threading.Timer(rand.uniform(SHORTEST_S, args.life_s), server.process.kill)
    for line in said(load.stdout):
        if not acknowledged:
            timer.start()
        if line == "end":
            break
        acknowledged.add(line)
    timer.cancel()
    server.process.kill()
    server.process.wait()
    reader.stop()
    return acknowledged


def tell(stream: IO[str] | None, text: str) -> None:
    """Write to a process and flush."""
    assert stream is not None
    stream.write(text)
    stream.flush()


def said(stream: IO[str] | None):
    """Yield the lines of a process."""
    assert stream is not None
    for line in stream:
        yield line.strip()


def flags(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the flags of the collector."""
    often = ("--seal-spans", str(args.seal_spans), "--seal-quiet-s", "0.2", "--seal-s", "1")
    return (*often, *args.serve.split())


def folders(work: Path) -> set[str]:
    """Return the names of the segments' folders, listed or not."""
    return {path.name for path in (work / "segments").glob("[0-9]*")}


def kill_start(number: int, args: argparse.Namespace, work: Path) -> None:
    """Kill a collector that is starting, at a random moment."""
    rand = random.Random(args.seed << 17 | number)
    with contextlib.suppress(SystemExit):
        Server(work, flags=flags(args), killed_after_s=rand.uniform(*START_LIFE_S)).process.wait(60)


def check(number: int, acknowledged: set[str], server: Server, batch: int, tally: Tally) -> None:
    """Look for each acknowledged request of a round."""
    rows = server.sql(OF_ROUND.format(f"{number:04x}"), limit=1_000_000)
    found = {str(request): (int(str(count)), int(str(distinct))) for request, count, distinct in rows}
    for request in acknowledged:
        count, distinct = found.get(request, (0, 0))
        tally.missing += batch - distinct
        tally.doubled += count - distinct
    tally.halves += sum(distinct != batch for _, distinct in found.values())
    tally.acknowledged += len(acknowledged) * batch


def measure(args: argparse.Namespace, work: Path) -> Tally:
    """Run all rounds."""
    tally = Tally()
    command = [sys.executable, __file__, "--load", "--calls", str(args.calls), "--batch", str(args.batch)]
    load = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        everything: dict[int, set[str]] = {}
        for number in range(args.rounds):
            everything[number] = kill_round(number, args, work, load)
            if number % START_KILL_EVERY == START_KILL_EVERY - 1:
                kill_start(number, args, work)
                tally.starts_killed += 1
            left, started = folders(work), time.perf_counter()
            server = Server(work, flags=flags(args))
            tally.ready_s.append(time.perf_counter() - started)
            tally.half_segments += len(left - folders(work))
            tally.segments = int(str(server.sql("select count(*) from segment_rows")[0][0]))
            check(number, everything[number], server, args.batch, tally)
            print(
                f"round {number + 1}: {tally.acknowledged} spans acknowledged so far, "
                f"{tally.missing} missing, {tally.doubled} doubled; {tally.segments} segments sealed, "
                f"{tally.half_segments} kills left one half-written; ready in {tally.ready_s[-1]:.1f} s",
                file=sys.stderr,
                flush=True,
            )
            if number == args.rounds - 1:
                # What was there after its own round is there at the end, too: sealed, merged, or as it was.
                again = Tally()
                for earlier, acknowledged in everything.items():
                    check(earlier, acknowledged, server, args.batch, again)
                tally.missing = max(tally.missing, again.missing)
                tally.doubled = max(tally.doubled, again.doubled)
                tally.stored = int(str(server.sql("select count(*) from spans")[0][0]))
            server.process.kill()
            server.process.wait()
            tally.rounds += 1
    finally:
        load.kill()
        load.wait()
    return tally


def main() -> int:
    """Kill and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=32, help="export calls in flight")
    parser.add_argument("--batch", type=int, default=512, help="spans a call")
    parser.add_argument(
        "--seal-spans", type=int, default=20_000, help="spans after which a segment is sealed"
    )
    parser.add_argument("--life-s", type=float, default=4.0, help="seconds after its first answer, at most")
    parser.add_argument("--serve", default="", metavar="FLAGS", help="more flags of the collector")
    parser.add_argument("--seed", type=int, default=1, help="of the moments at which is killed")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        Load(args.calls, args.batch).run()
        return 0
    with tempfile.TemporaryDirectory() as work:
        tally = measure(args, Path(work) / "data")
    ready = sorted(tally.ready_s)
    result = {
        "rounds": tally.rounds,
        "starts_killed": tally.starts_killed,
        "acknowledged": tally.acknowledged,
        "missing": tally.missing,
        "doubled": tally.doubled,
        "requests_by_half": tally.halves,
        "ready_p50_s": round(at_quantile(ready, 0.5), 2),
        "ready_max_s": round(ready[-1], 2),
        "segments": tally.segments,
        "half_segments": tally.half_segments,
        "stored": tally.stored,
        "machine": machine(),
        "command": f"python benchmarks/kill.py --rounds {args.rounds} --calls {args.calls} "
        f"--batch {args.batch} --seal-spans {args.seal_spans} --seed {args.seed}",
    }
    if args.format == "json":
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:<24} {value}")
    return 1 if tally.missing or tally.doubled or tally.halves else 0


if __name__ == "__main__":
    sys.exit(main())
