"""Durable ingest over real OTLP/gRPC while a reader queries, then kill -9 in the middle of a second load.

    python benchmarks/ingest.py [--spans 2000000] [--calls 32] [--batch 512] [--format text|json]
    python benchmarks/ingest.py --minutes 5      the steady state: sealing on, no kill

Three processes: `tailscope serve`, a load client (export calls of 512 spans with 5 attributes each, 32 in
flight), and this one, which runs the p99-per-stage query twice a second and watches the server's memory.
Every span is new. Prints one table; exits 1 where an acknowledged span is missing afterwards.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
STAGES = ("auth", "preprocess", "queue", "inference", "postprocess", "serialize", "db")
TRACE_SPANS = 8
QUERY = "select stage, count(*), quantile_cont(duration_ms, 0.99) from spans group by all order by all"
KILL_AFTER_S = 3.0
STRETCH_S = 10.0
SEALING_S = 300.0
QUIET_LOOKS = 15
START_S = 60.0
"""What a start may take, with the replay of a log."""


def export_body(spans: int, rand: random.Random) -> tuple[bytes, list[bytes]]:
    """Return one export request of whole traces, and its trace ids."""
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    request = trace_service_pb2.ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key, value in (("service.name", "infer-api"), ("service.instance.id", f"pod-{rand.randrange(4)}")):
        resource.resource.attributes.add(key=key).value.string_value = value
    scope = resource.scope_spans.add()
    scope.scope.name = "bench"
    now = time.time_ns()
    ids: list[bytes] = []
    root = b""
    for i in range(spans):
        position = i % TRACE_SPANS
        span = scope.spans.add(
            name="POST /predict" if position == 0 else STAGES[position - 1],
            kind=2 if position == 0 else 1,
            span_id=rand.randbytes(8),
            start_time_unix_nano=now + i * 1000,
            end_time_unix_nano=now + i * 1000 + rand.randrange(1000, 10_000_000),
        )
        if position == 0:
            ids.append(rand.randbytes(16))
            root = span.span_id
        else:
            span.parent_span_id = root
        span.trace_id = ids[-1]
        span.attributes.add(key="batch.size").value.int_value = rand.randrange(1, 33)
        span.attributes.add(key="gpu.time_ms").value.double_value = rand.random()
        span.attributes.add(key="model").value.string_value = "m-7b"
        span.attributes.add(key="user").value.string_value = f"u{rand.randrange(1000)}"
        span.attributes.add(key="cache.hit").value.bool_value = rand.random() < 0.3
    return request.SerializeToString(), ids


@dataclass(slots=True)
class Load:
    """The load client: keeps `calls` export calls in flight until all is sent or the server is gone."""

    port: int
    spans: int
    calls: int
    batch: int
    taken_ms: list[float] = field(default_factory=list)
    acked: int = 0
    refused: int = 0
    left: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Send everything and print what it took."""
        import grpc

        rand = random.Random(1)
        bodies = []
        for _ in range(160):
            body, ids = export_body(self.batch, rand)
            # Where each trace id stands, so that a fresh request costs a few copies and no encoding.
            places = [at for trace in ids for at in occurrences(body, trace)]
            bodies.append((body, places))
        channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}", options=[("grpc.max_send_message_length", 64 << 20)]
        )
        call = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        self.left = self.spans
        threads = [threading.Thread(target=self.worker, args=(call, bodies, k)) for k in range(self.calls)]
        threading.Thread(target=self.wait_for_the_end, daemon=True).start()
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - started
        self.taken_ms.sort()
        print(
            json.dumps(
                {
                    "acked": self.acked,
                    "refused": self.refused,
                    "seconds": took,
                    "cpu_s": time.process_time(),
                    "p50_ms": at_quantile(self.taken_ms, 0.5),
                    "p99_ms": at_quantile(self.taken_ms, 0.99),
                    "max_ms": self.taken_ms[-1] if self.taken_ms else 0.0,
                }
            ),
            flush=True,
        )

    def wait_for_the_end(self) -> None:
        """Stop when stdin is closed."""
        sys.stdin.read()
        with self.guard:
            self.left = 0

    def worker(self, call, bodies, seed: int) -> None:
        """Send one request after the other until none is left."""
        import grpc

        rand = random.Random(seed)
        while True:
            with self.guard:
                if self.left <= 0:
                    return
                self.left -= self.batch
            body, places = bodies[rand.randrange(len(bodies))]
            fresh = bytearray(body)
            salt = rand.randbytes(12)
            for place in places:
                fresh[place + 4 : place + 16] = salt
            started = time.perf_counter()
            try:
                call(bytes(fresh), timeout=30)
            except grpc.RpcError as error:
                with self.guard:
                    self.refused += 1
                    self.left += self.batch if self.left > 0 else 0
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    time.sleep(0.05)
                    continue
                return
            with self.guard:
                self.taken_ms.append((time.perf_counter() - started) * 1000)
                self.acked += self.batch
                if len(self.taken_ms) % 20 == 0:
                    print(json.dumps({"acked": self.acked}), flush=True)


def occurrences(body: bytes, part: bytes) -> list[int]:
    """Return where a part stands in a body."""
    places, at = [], body.find(part)
    while at >= 0:
        places.append(at)
        at = body.find(part, at + 1)
    return places


def at_quantile(ordered: list[float], q: float) -> float:
    """Return the nearest-rank quantile of ordered values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))] if ordered else 0.0


@dataclass(slots=True)
class Server:
    """A `tailscope serve` process on free ports; a start that takes longer than a minute is ended."""

    data: Path
    flags: tuple[str, ...] = ()
    killed_after_s: float = START_S
    process: subprocess.Popen[str] = field(init=False)
    url: str = ""
    grpc_port: int = 0

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "tailscope", "serve", "--data", str(self.data)]
        command += ["--grpc-port", "0", "--http-port", "0", *self.flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        timer = threading.Timer(self.killed_after_s, self.process.kill)
        timer.start()
        said: list[str] = []
        # The line is: Collecting into DIR: OTLP/gRPC HOST:PORT, OTLP/HTTP and SQL URL.
        while "OTLP/gRPC" not in (line := self.process.stderr.readline()):
            said.append(line)
            if not line:
                timer.cancel()
                raise SystemExit(f"the collector did not start: {' '.join(said)}")
        if self.killed_after_s == START_S:
            timer.cancel()
        self.grpc_port = int(line.rpartition("OTLP/gRPC ")[2].partition(",")[0].rpartition(":")[2])
        self.url = line.split()[-1]
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def sql(self, query: str, *, limit: int | None = None) -> list[list[object]]:
        """Return the rows of a query."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        body = json.dumps({"query": query, "limit": limit}).encode()
        request = urllib.request.Request(f"{self.url}/api/sql", body, headers)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own server
            return json.loads(answer.read())["rows"]

    def status(self, name: str) -> int:
        """Return a field of /proc/PID/status in kB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        return 0

    def cpu_s(self) -> float:
        """Return the processor time of the server so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Reader(threading.Thread):
    """Runs the query twice a second until `stop`."""

    def __init__(self, server: Server, *, query: str = QUERY) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.query = query
        self.stopped = threading.Event()
        self.query_ms: list[float] = []

    def run(self) -> None:
        """Ask, until told to stop."""
        while not self.stopped.wait(0.5):
            started = time.perf_counter()
            try:
                self.server.sql(self.query)
            except (OSError, http.client.HTTPException):
                continue
            self.query_ms.append((time.perf_counter() - started) * 1000)

    def stop(self) -> None:
        """Stop asking, and wait for the last answer."""
        self.stopped.set()
        self.join()


def start_load(server: Server, args: argparse.Namespace, spans: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--load", str(server.grpc_port), "--spans", str(spans)]
    command += ["--calls", str(args.calls), "--batch", str(args.batch)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def last_line(load: subprocess.Popen[str]) -> dict[str, float]:
    assert load.stdout is not None
    lines = load.stdout.readlines()
    load.wait()
    return json.loads(lines[-1])


def measure(args: argparse.Namespace, work: Path) -> dict[str, object]:
    server = Server(work / "data")
    load = start_load(server, args, args.spans)
    reader = Reader(server)
    reader.start()
    load_result = last_line(load)
    reader.stop()
    cpu, peak_kb = server.cpu_s(), server.status("VmHWM")
    # The second load is cut by SIGKILL.
    load = start_load(server, args, 1 << 40)
    assert load.stdout is not None
    acked, started = 0, time.perf_counter()
    for line in load.stdout:
        acked = json.loads(line)["acked"]
        if acked and time.perf_counter() - started > KILL_AFTER_S and server.process.poll() is None:
            server.process.send_signal(signal.SIGKILL)
    load.wait()
    server.process.wait()
    opened = time.perf_counter()
    server = Server(work / "data")
    recovery_s = time.perf_counter() - opened
    stored = int(str(server.sql("select count(*) from spans")[0][0]))
    server.process.terminate()
    server.process.wait(120)
    size = sum(file.stat().st_size for file in (work / "data").rglob("*") if file.is_file())
    acknowledged = int(load_result["acked"]) + acked
    n = load_result["acked"]
    return {
        "spans_per_s": round(n / load_result["seconds"]),
        "spans": int(n),
        "refused_calls": int(load_result["refused"]),
        "ack_p50_ms": round(load_result["p50_ms"], 1),
        "ack_p99_ms": round(load_result["p99_ms"], 1),
        "ack_max_ms": round(load_result["max_ms"], 1),
        "rss_peak_mib": round(peak_kb / 1024),
        "query_p50_ms": round(at_quantile(sorted(reader.query_ms), 0.5), 1),
        "query_max_ms": round(max(reader.query_ms, default=0.0), 1),
        "queries": len(reader.query_ms),
        "server_cpu_us_per_span": round(cpu / n * 1e6, 2),
        "client_cpu_us_per_span": round(load_result["cpu_s"] / n * 1e6, 2),
        "bytes_per_span_on_disk": round(size / max(stored, 1), 1),
        "killed_acknowledged": acknowledged,
        "killed_stored": stored,
        "killed_missing": max(0, acknowledged - stored),
        "recovery_s": round(recovery_s, 2),
    }


def measure_steady(args: argparse.Namespace, work: Path) -> dict[str, object]:
    """Load for minutes, with sealing on; then wait until what has settled is sealed."""
    server = Server(work / "data", flags=("--seal-spans", str(args.seal_spans), "--seal-quiet-s", "5"))
    load = start_load(server, args, 1 << 40)
    reader = Reader(server)
    reader.start()
    assert load.stdout is not None
    rates: list[float] = []
    before, at = 0, time.perf_counter()
    until = at + args.minutes * 60
    for line in load.stdout:
        acked, now = json.loads(line)["acked"], time.perf_counter()
        if now - at >= STRETCH_S:
            rates.append((acked - before) / (now - at))
            before, at = acked, now
        if now > until:
            break
    assert load.stdin is not None
    load.stdin.close()
    result = last_line(load)
    reader.stop()
    cpu, peak_kb = server.cpu_s(), server.status("VmHWM")
    stored = int(str(server.sql("select count(*) from spans")[0][0]))
    sealed = wait_for_sealing(server, result["acked"])
    server.process.terminate()
    server.process.wait(120)
    n = result["acked"]
    return {
        "minutes": args.minutes,
        "spans_per_s": round(n / result["seconds"]),
        "slowest_10_s_spans_per_s": round(min(rates, default=0)),
        "spans": int(n),
        "missing": max(0, int(n) - stored),
        "refused_calls": int(result["refused"]),
        "ack_p50_ms": round(result["p50_ms"], 1),
        "ack_p99_ms": round(result["p99_ms"], 1),
        "ack_max_ms": round(result["max_ms"], 1),
        "rss_peak_mib": round(peak_kb / 1024),
        "query_p50_ms": round(at_quantile(sorted(reader.query_ms), 0.5), 1),
        "query_max_ms": round(max(reader.query_ms, default=0.0), 1),
        "server_cpu_us_per_span": round(cpu / n * 1e6, 2),
        **sealed,
    }


def wait_for_sealing(server: Server, spans: float) -> dict[str, object]:
    """Wait until no more is sealed, and return what the segments hold and take."""
    query = "select count(*), coalesce(sum(span_count), 0), coalesce(sum(size_bytes), 0) from segment_rows"
    segments = sealed = size = quiet = 0
    deadline = time.perf_counter() + SEALING_S
    while quiet < QUIET_LOOKS and sealed < spans and time.perf_counter() < deadline:
        time.sleep(2)
        last = sealed
        segments, sealed, size = (int(str(number)) for number in server.sql(query)[0])
        quiet = quiet + 1 if sealed == last else 0
    return {
        "segments": segments,
        "sealed_spans": sealed,
        "bytes_per_sealed_span": round(size / sealed, 1) if sealed else None,
    }


def machine() -> str:
    """Describe the machine in a line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next(
            (
                line.partition(":")[2].strip()
                for line in cpuinfo.read_text().splitlines()
                if line.startswith("model name")
            ),
            model,
        )
    return f"{os.cpu_count()} cores ({model}), Python {platform.python_version()}, {platform.system()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spans", type=int, default=2_000_000)
    parser.add_argument("--calls", type=int, default=32, help="export calls in flight")
    parser.add_argument("--batch", type=int, default=512, help="spans a call")
    parser.add_argument("--minutes", type=float, help="load for so long, with sealing on, and kill nothing")
    parser.add_argument(
        "--seal-spans",
        type=int,
        default=1_000_000,
        help="with --minutes: spans after which a segment is sealed",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--load", type=int, metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        Load(args.load, args.spans, args.calls, args.batch).run()
        return 0
    with tempfile.TemporaryDirectory() as work:
        result = measure_steady(args, Path(work)) if args.minutes else measure(args, Path(work))
    much = (
        f"--minutes {args.minutes:g} --seal-spans {args.seal_spans}"
        if args.minutes
        else f"--spans {args.spans}"
    )
    result["machine"] = machine()
    result["command"] = f"python benchmarks/ingest.py {much} --calls {args.calls} --batch {args.batch}"
    if args.format == "json":
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:<24} {value}")
    return 1 if result.get("killed_missing") or result.get("missing") else 0


if __name__ == "__main__":
    sys.exit(main())
