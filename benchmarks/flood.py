"""What the collector's memory comes to, whatever is sent: floods of hostile and of clumsy requests.

    python benchmarks/flood.py [--kinds large,bombs] [--calls 48] [--seconds 6] [--format text|json]

Each kind gets a collector of its own with default settings and `calls` clients over gRPC (or HTTP) that send
until the time is over. Prints the peak of resident memory, what the answers were, how long an honest export
took meanwhile and afterwards. Exits 1 where the collector died, the peak is over 1.5 GiB, or no honest export
came through.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ingest import EXPORT, Server, export_body, machine

if TYPE_CHECKING:
    from collections.abc import Callable

MIB: Final = 1 << 20
BAR_MIB: Final = 1536
REQUEST_BYTES: Final = 60 * MIB
"""Just under the default bound of one request."""

Make = "Callable[[random.Random], bytes]"


def varint(number: int) -> bytes:
    """Spell a number as protobuf does."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """Spell a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def in_request(spans: bytes) -> bytes:
    """Wrap the fields of a scope's spans into an export request."""
    return field(1, field(2, spans))


def span(rand: random.Random, more: bytes) -> bytes:
    """Spell a valid span with other fields."""
    times = b"\x39" + (1_735_689_600_000_000_000).to_bytes(8, "little")
    return field(2, field(1, rand.randbytes(16)) + field(2, rand.randbytes(8)) + times + more)


def large(_: random.Random) -> bytes:
    """Return a large request that says nothing: an unknown field."""
    return field(15, bytes(REQUEST_BYTES))


def full(rand: random.Random) -> bytes:
    """Return a large request of ordinary spans, all new."""
    bodies = []
    for _ in range(8):
        body, ids = export_body(512, rand)
        bodies.append((body, ids))
    parts: list[bytes] = []
    size = 0
    while size < REQUEST_BYTES:
        body, ids = bodies[len(parts) % len(bodies)]
        salt = rand.randbytes(12)
        for trace in ids:
            body = body.replace(trace, trace[:4] + salt)
        parts.append(body)
        size += len(body)
    return b"".join(parts)


def empty_spans(_: random.Random) -> bytes:
    """Return millions of spans of two bytes."""
    return in_request(b"\x12\x00" * (REQUEST_BYTES // 2))


def small_spans(rand: random.Random) -> bytes:
    """Return the most valid spans that fit."""
    one = [span(rand, b"") for _ in range(64)]
    many = b"".join(one) * (REQUEST_BYTES // sum(map(len, one)))
    return in_request(many)


def empty_attributes(rand: random.Random) -> bytes:
    """Return one span with millions of attributes of two bytes."""
    return in_request(span(rand, b"\x4a\x00" * (REQUEST_BYTES // 2)))


def empty_events(rand: random.Random) -> bytes:
    """Return one span with millions of events of two bytes."""
    return in_request(span(rand, b"\x5a\x00" * (REQUEST_BYTES // 2)))


def empty_items(rand: random.Random) -> bytes:
    """Return one attribute that is an array of millions of nothings."""
    value = field(5, b"\x0a\x00" * (REQUEST_BYTES // 2))
    return in_request(span(rand, field(9, field(1, b"a") + field(2, value))))


def empty_scopes(_: random.Random) -> bytes:
    """Return millions of scopes without a span."""
    return field(1, b"\x12\x00" * (REQUEST_BYTES // 2))


def empty_resources(_: random.Random) -> bytes:
    """Return millions of resources without a scope."""
    return b"\x0a\x00" * (REQUEST_BYTES // 2)


def deep(rand: random.Random) -> bytes:
    """Return an attribute nested to the last level of 20,000."""
    value = b""
    for _ in range(20_000):
        value = field(5, field(1, value))
    return in_request(span(rand, field(9, field(1, b"a") + field(2, value))))


def long_texts(rand: random.Random) -> bytes:
    """Return spans with attributes of 10 MB."""
    text = field(9, field(1, b"a") + field(2, field(1, bytes([97 + rand.randrange(26)]) * 10_000_000)))
    return in_request(b"".join(span(rand, text) for _ in range(5)))


def wide(rand: random.Random) -> bytes:
    """Return spans of 128 attributes with keys of their own."""
    spans = []
    for _ in range(200):
        pairs = (field(1, rand.randbytes(8).hex().encode()) + field(2, field(1, b"v")) for _ in range(128))
        spans.append(span(rand, b"".join(field(9, pair) for pair in pairs)))
    return in_request(b"".join(spans))


def tiny(rand: random.Random) -> bytes:
    """Return a request of one span."""
    return in_request(span(rand, b""))


def duplicates(_: random.Random) -> bytes:
    """Return the same 512 spans each time."""
    return export_body(512, random.Random(7))[0]


KINDS: Final[dict[str, Make]] = {
    made.__name__: made
    for made in (
        large, full, small_spans, empty_spans, empty_attributes, empty_events, empty_items, empty_scopes,
        empty_resources, deep, long_texts, wide, tiny, duplicates,
    )
}  # fmt: skip
COMPRESSED: Final = ("large", "full", "empty_spans", "empty_items")
"""Kinds that are sent gzipped, too: `large` is then a bomb of 60 kB."""
OVER_HTTP: Final = ("large", "full", "small_spans", "json")


@dataclass(frozen=True, slots=True)
class Flood:
    """One way to be unkind."""

    name: str
    make: Callable[[random.Random], bytes]
    over: str = "grpc"
    gzipped: bool = False


def floods() -> dict[str, Flood]:
    """Return every flood by name."""
    made = {name: Flood(name, make) for name, make in KINDS.items()}
    for name in COMPRESSED:
        made[f"{name}_gzip"] = Flood(f"{name}_gzip", KINDS[name], gzipped=True)
    for name in ("large", "full", "small_spans"):
        made[f"{name}_http"] = Flood(f"{name}_http", KINDS[name], over="http")
    made["json_http"] = Flood("json_http", json_text, over="http")
    return made


def json_text(rand: random.Random) -> bytes:
    """Return a large request in JSON."""
    one = {"traceId": rand.randbytes(16).hex(), "spanId": rand.randbytes(8).hex(), "name": "op"}
    spans = [one] * (REQUEST_BYTES // len(json.dumps(one)))
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


class Client:
    """Sends one kind until told to stop; runs in a process of its own."""

    def __init__(self, flood: Flood, server_url: str, grpc_port: int, calls: int) -> None:
        self.flood, self.url, self.port, self.calls = flood, server_url, grpc_port, calls
        self.answers: collections.Counter[str] = collections.Counter()
        self.until = 0.0

    def run(self, seconds: float) -> None:
        """Send and print what was answered."""
        rand = random.Random(3)
        # Small ones are all new; the large ones are few, and made beforehand.
        bodies = [self.flood.make(rand) for _ in range(1 if self.large else 64)]
        if self.flood.gzipped:
            bodies = [gzip.compress(body, 1) for body in bodies]
        self.until = time.monotonic() + seconds
        with ThreadPoolExecutor(self.calls) as pool:
            for worker in range(self.calls):
                pool.submit(self.worker, bodies, worker)
        print(json.dumps(self.answers), flush=True)

    @property
    def large(self) -> bool:
        """Whether one request of this kind is megabytes."""
        return self.flood.name not in ("tiny", "wide", "duplicates", "deep")

    def worker(self, bodies: list[bytes], seed: int) -> None:
        """Send one request after the other."""
        rand = random.Random(seed)
        send = self.over_grpc() if self.flood.over == "grpc" else self.over_http
        while time.monotonic() < self.until:
            body = self.flood.make(rand) if self.flood.name == "tiny" else bodies[rand.randrange(len(bodies))]
            answer = send(body)
            self.answers[answer] += 1
            if answer not in ("OK", "200"):
                time.sleep(0.05)

    def over_grpc(self) -> Callable[[bytes], str]:
        """Return a call on a connection of its own."""
        import grpc

        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.insecure_channel(f"127.0.0.1:{self.port}", options=options)
        metadata = [("grpc-internal-encoding-request", "gzip")] if self.flood.gzipped else []
        call = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        plain = gzip.decompress if self.flood.gzipped else None

        def send(body: bytes) -> str:
            try:
                call(plain(body) if plain else body, timeout=20, metadata=metadata)
            except grpc.RpcError as error:
                return str(error.code().name)
            return "OK"

        return send

    def over_http(self, body: bytes) -> str:
        """Post once."""
        kind = "application/json" if self.flood.name.startswith("json") else "application/x-protobuf"
        request = urllib.request.Request(f"{self.url}/v1/traces", body, {"Content-Type": kind})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - our own server
                return str(answer.status)
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError as error:
            return type(error).__name__


def honest(server: Server, seconds: float) -> list[float]:
    """Export small requests one by one, as a client that retries; return how long each took, in ms."""
    rand = random.Random(11)
    taken: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        body, started = export_body(64, rand)[0], time.perf_counter()
        while time.monotonic() < until + 20:
            request = urllib.request.Request(  # noqa: S310 - our own server
                f"{server.url}/v1/traces", body, {"Content-Type": "application/x-protobuf"}
            )
            try:
                with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - our own server
                    taken.append((time.perf_counter() - started) * 1000)
                    break
            except OSError:
                if server.process.poll() is not None:
                    return taken
                time.sleep(0.1)
        time.sleep(0.1)
    return taken


def measure(flood: Flood, args: argparse.Namespace, work: Path) -> dict[str, object]:
    """Run one flood against a new collector."""
    server = Server(work / flood.name)
    before_mib = server.status("VmRSS") // 1024
    command = [sys.executable, __file__, "--client", flood.name, server.url, str(server.grpc_port)]
    command += ["--calls", str(args.calls), "--seconds", str(args.seconds)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    taken: list[float] = []
    thread = threading.Thread(target=lambda: taken.extend(honest(server, args.seconds)))
    thread.start()
    said, _ = client.communicate(timeout=args.seconds + 180)
    thread.join()
    alive = server.process.poll() is None
    after = honest(server, 1.0) if alive else []
    result: dict[str, object] = {
        "flood": flood.name,
        "peak_mib": server.status("VmHWM") // 1024 if alive else 0,
        "before_mib": before_mib,
        "after_mib": server.status("VmRSS") // 1024 if alive else 0,
        "answers": json.loads(said or "{}"),
        "honest": len(taken),
        "honest_max_ms": round(max(taken, default=0)),
        "after_max_ms": round(max(after, default=0)),
        "alive": alive,
    }
    server.process.terminate()
    try:
        server.process.wait(60)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
    return result


def main() -> int:
    """Measure the chosen floods."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(floods()), help="comma-separated (default: all)")
    parser.add_argument("--calls", type=int, default=48, help="clients, each with a connection")
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each kind is sent")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        name, url, port = args.client
        Client(floods()[name], url, int(port), args.calls).run(args.seconds)
        return 0
    failed = False
    if args.format == "text":
        print(f"# {machine()}, {args.calls} clients, {args.seconds:g} s each")
    for name in args.kinds.split(","):
        with tempfile.TemporaryDirectory() as work:
            result = measure(floods()[name], args, Path(work))
        print(json.dumps(result) if args.format == "json" else row(result), flush=True)
        failed |= not result["alive"] or not result["honest"] or int(str(result["peak_mib"])) > BAR_MIB
    return 1 if failed else 0


def row(result: dict[str, object]) -> str:
    """Spell a result in a line."""
    state = "alive" if result["alive"] else "DEAD"
    return (
        f"{result['flood']:<20} peak {result['peak_mib']:>6} MiB, after {result['after_mib']:>5}; "
        f"honest exports {result['honest']:>3}, slowest {result['honest_max_ms']:>6} ms, "
        f"afterwards {result['after_max_ms']:>5} ms; {state}; {result['answers']}"
    )


if __name__ == "__main__":
    sys.exit(main())
