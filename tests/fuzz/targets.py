"""What is fuzzed: the decoders as the collector uses them, and both ports of a real one.

A target is given a case and returns nothing; it raises Finding where the collector did not answer well.
"""

from __future__ import annotations

import logging
import socket
import threading
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import grpc

from tailscope_collector import Collector, Settings
from tailscope_collector._files._zipkin import read_zipkin
from tailscope_collector._otlp_json import read_json
from tailscope_collector.errors import MalformedRequestError, OverloadedError, RequestError
from tests.collector.building import SpanSpec, body
from tests.collector.serving import ask_rows, post_protobuf
from tests.fuzz import mutation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from tailscope_collector._intake import Outcome

ANSWER_S: Final = 30.0
TOGETHER: Final = 32
"""Cases that are in the collector at a time, so that they share chunks and commits."""

METHODS: Final = (b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"TRACE", b"G\x00T", b"")
PATHS: Final = (
    b"/v1/traces", b"/v1/metrics", b"/v1/logs", b"/api/v2/spans", b"/api/sql", b"/api/info", b"/api/report",
    b"/api/report?where=1%3D1", b"/api/report?percentile=99&since=1h", b"/api/services",
    b"/api/services/a/operations", b"/api/findings", b"/api/findings/x", b"/api/findings?name=a",
    b"/api/operations?service=svc&spanKind=server",
    b"/api/traces?service=svc&limit=3&tags=%7B%7D&lookback=1h",
    b"/api/traces/00000000000000000000000000000001?form=jaeger", b"/api/dependencies?endTs=1&lookback=1",
    b"/healthz", b"/readyz", b"/metrics", b"/openapi.json", b"*", b"//", b"http://localhost/healthz",
)  # fmt: skip
HEADERS: Final = (
    b"Content-Type: application/json", b"Content-Type: application/x-protobuf", b"Content-Encoding: gzip",
    b"Content-Encoding: deflate", b"Content-Encoding: zstd", b"Accept: application/json",
    b"Expect: 100-continue",
    b"Transfer-Encoding: chunked", b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket",
    b"Authorization: Bearer x", b"Content-Length: 5", b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Host: evil.example", b"Origin: null", b"Range: bytes=0-", b": x", b"X\xff: \xff",
)  # fmt: skip
QUESTIONS: Final = (
    b'{"query": "select 1"}', b'{"query": "select * from spans", "limit": 5}', b'{"query": "from requests"}',
    b'{"query": "select p99(duration_ms) from requests", "limit": null}', b'{"query": 1}', b"[]", b"{", b"",
)  # fmt: skip


class Finding(Exception):  # noqa: N818 - what a fuzzer calls it
    """The collector did what it should not."""


class Target(Protocol):
    """Makes cases and tries them."""

    def case(self, random: Random) -> bytes:
        """Return the next input."""
        ...

    def attempt(self, case: bytes) -> None:
        """Try one input; raises Finding."""
        ...

    def settle(self) -> None:
        """Look at what the tried inputs have left; raises Finding."""
        ...


class Decoding:
    """Requests on their way into a store; everything but "malformed" and "later" is a finding."""

    def __init__(
        self,
        submit: Callable[[bytes, Callable[[Outcome], None]], None],
        case: Callable[[Random], bytes],
        read: Callable[[bytes], bytes],
        check: Callable[[], None],
    ) -> None:
        self.case = case
        self._submit = submit
        self._read = read
        self._check = check
        self._waiting: list[tuple[bytes, Future[Outcome]]] = []

    def attempt(self, case: bytes) -> None:
        try:
            raw = self._read(case)
            answer: Future[Outcome] = Future()
            self._submit(raw, answer.set_result)
        except (MalformedRequestError, OverloadedError):
            return
        self._waiting.append((case, answer))
        if len(self._waiting) >= TOGETHER:
            self._collect()

    def settle(self) -> None:
        self._collect()
        self._check()

    def _collect(self) -> None:
        wait([answer for _, answer in self._waiting], ANSWER_S)
        for case, answer in self._waiting:
            if not answer.done():
                raise Finding(f"not answered within {ANSWER_S:g} s: {case[:2000]!r}")
            error = answer.result().error
            # "cannot be read" is what the intake says of an exception that nobody expected.
            if error is not None and (
                not isinstance(error, MalformedRequestError) or "cannot be read" in str(error)
            ):
                raise Finding(f"{type(error).__name__} {error}: {case[:2000]!r}")
        self._waiting.clear()


class Surface:
    """Raw bytes on the ports; a 5xx that is no backpressure is a finding."""

    def __init__(self, collector: Collector, case: Callable[[Random], bytes], port: int) -> None:
        self.case = case
        self._collector = collector
        self._address = (urlsplit(collector.url).hostname or "", port)
        self._span = 1_000_000

    def attempt(self, case: bytes) -> None:
        said = b""
        try:
            with socket.create_connection(self._address, ANSWER_S) as peer:
                peer.sendall(case)
                peer.shutdown(socket.SHUT_WR)
                while part := peer.recv(65_536):
                    said += part
        except TimeoutError as error:
            raise Finding(f"no answer and no end within {ANSWER_S:g} s: {case[:2000]!r}") from error
        except OSError:
            pass  # closed while it was sending
        for status in (b"500", b"501", b"502", b"504"):
            if b"HTTP/1.1 " + status in said:
                raise Finding(f"{said[:300]!r} to {case[:2000]!r}")

    def settle(self) -> None:
        """Store a good request beside the bad ones, over both ports."""
        self._span += 1
        status = post_protobuf(self._collector.url, body(SpanSpec(trace=77, span=self._span))).status
        with grpc.insecure_channel(self._collector.grpc) as channel:
            call: Any = channel.unary_unary(
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export", None, None
            )
            call(body(SpanSpec(trace=78, span=self._span)), timeout=ANSWER_S)
        if status != 200:
            raise Finding(f"a good request was answered with {status}")


class Faults(logging.Handler):
    """Keeps the first record that says that something went wrong in the collector itself."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or logging.Formatter().format(record)


class Running:
    """A collector on its own directory, and the targets on it."""

    def __init__(self, folder: Path) -> None:
        self.faults = Faults()
        logging.getLogger().addHandler(self.faults)
        settings = Settings(body_timeout_s=2, head_timeout_s=2, query_timeout_s=10)
        self.collector = Collector(folder, settings=settings)
        self.collector.start()

    def target(self, name: str) -> Target:
        """Return the target of a name; raises KeyError."""
        collector = self.collector
        spans, points = collector.intake.submit, collector.metrics.submit
        http, rpc = int(collector.url.rpartition(":")[2]), int(collector.grpc.rpartition(":")[2])
        traces, metrics = mutation.trace_seeds(), mutation.metric_seeds()
        trees, zipkin = mutation.json_seeds(), mutation.zipkin_seeds()

        def of_bytes(seeds: list[bytes]) -> Callable[[Random], bytes]:
            return lambda random: mutation.changed_bytes(random, random.choice(seeds), seeds)

        def of_trees(seeds: list[Any]) -> Callable[[Random], bytes]:
            return lambda random: mutation.changed_tree(random, random.choice(seeds))

        made: dict[str, Callable[[], Target]] = {
            "protobuf": lambda: Decoding(spans, of_bytes(traces), bytes, self.check_spans),
            "json": lambda: Decoding(
                spans, of_trees(trees), lambda raw: read_json(raw).body, self.check_spans
            ),
            "zipkin": lambda: Decoding(
                spans, of_trees(zipkin), lambda raw: read_zipkin(raw).body, self.check_spans
            ),
            "metrics": lambda: Decoding(points, of_bytes(metrics), bytes, self.check_points),
            "http": lambda: Surface(collector, lambda random: http_case(random, traces, trees, zipkin), http),
            "grpc": lambda: Surface(collector, lambda random: grpc_case(random, traces), rpc),
        }
        return made[name]()

    def check_spans(self) -> None:
        """Read everything that was stored: a value that the database cannot show is a finding."""
        self._asked("select count(columns(*)) from spans")
        self._asked("select * from (select * from spans order by start_unix_nano desc limit 50)")
        self._asked("select count(*), sum(span_count), max(duration_ms) from requests")
        self._asked("select count(*), sum(self_ms) from stages")

    def check_points(self) -> None:
        """Read all metrics."""
        self._asked("select count(columns(*)) from metrics")
        self._asked("select * from metrics limit 50")

    def _asked(self, query: str) -> None:
        try:
            ask_rows(self.collector.url, query)
        except AssertionError as error:
            raise Finding(f"{query}: {error}") from error

    def close(self) -> None:
        """Stop it; its threads have to be alive until then."""
        logging.getLogger().removeHandler(self.faults)
        alive = {thread.name for thread in threading.enumerate()}
        self.collector.stop()
        if not any(name.startswith("tailscope-http") for name in alive):
            raise Finding("the HTTP server's thread has ended")


def http_case(random: Random, traces: list[bytes], trees: list[Any], zipkin: list[Any]) -> bytes:
    """Return one to three HTTP requests that are more or less right."""
    return b"".join(
        _http_request(random, traces, trees, zipkin) for _ in range(random.choice((1, 1, 1, 2, 3)))
    )


def _http_request(random: Random, traces: list[bytes], trees: list[Any], zipkin: list[Any]) -> bytes:
    bodies: tuple[Callable[[], bytes], ...] = (
        lambda: mutation.changed_bytes(random, random.choice(traces), traces),
        lambda: mutation.changed_tree(random, random.choice(trees)),
        lambda: mutation.changed_tree(random, random.choice(zipkin)),
        lambda: random.choice(QUESTIONS),
        lambda: mutation.changed_bytes(random, random.choice(QUESTIONS), list(QUESTIONS)),
        lambda: b"",
    )
    content = random.choice(bodies)()
    if random.random() < 0.2:
        content = mutation.packed(random, content)
    method = random.choice(METHODS) if random.random() < 0.3 else random.choice((b"GET", b"POST", b"POST"))
    path = random.choice(PATHS)
    if random.random() < 0.3:
        path = mutation.changed_bytes(random, path, list(PATHS)).replace(b" ", b"+")
    headers = [b"Host: localhost", *random.sample(HEADERS, random.randint(0, 4))]
    if random.random() < 0.9:
        headers.append(b"Content-Length: %d" % len(content))
    head = b"%s %s HTTP/1.1\r\n%s\r\n\r\n" % (method, path, b"\r\n".join(headers))
    if random.random() < 0.2:
        head = mutation.changed_bytes(random, head, [])
    return head + content


def grpc_case(random: Random, traces: list[bytes]) -> bytes:
    """Return a greeting of HTTP/2 with frames that are more or less right."""
    frames = [b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"]  # SETTINGS
    for _ in range(random.randint(1, 5)):
        payload = (
            random.randbytes(random.randint(0, 40))
            if random.random() < 0.5
            else random.choice(traces)[:16_000]
        )
        kind, flags, stream = (
            random.randrange(11),
            random.choice((0, 1, 4, 5, 255)),
            random.choice((0, 1, 3, 2**31 - 1)),
        )
        frames.append(
            len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload
        )
    raw = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(frames)
    return mutation.changed_bytes(random, raw, []) if random.random() < 0.5 else raw


__all__ = ["Finding", "RequestError", "Running", "Target"]
