"""What thousands of slow clients do to a collector: nothing that its senders and readers would notice.

    python benchmarks/slow_clients.py [--clients 10000] [--seconds 20] [--tls | --grpc]

A real `tailscope serve`. Senders export over gRPC and HTTP and a reader asks, first alone, then while many
HTTP connections are held open by another process: a quarter says nothing, a quarter stops in the midst of a
head and adds a byte now and then, a quarter does so in a body, a quarter asks once and idles. With --grpc it
is the gRPC port: nothing, half a greeting, an export whose message comes byte by byte, a greeting and no
call. Those that are closed come again at once. Everything stays on 127.0.0.1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from asyncio.sslproto import SSLProtocol
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS = 100
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
START_S, TRICKLE_S = 60, 3.0
HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
OPENINGS = (
    b"",
    HEAD,
    HEAD + b"Content-Length: 1000000\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
)
SETTINGS_FRAME = bytes.fromhex("000000040000000000")


def opened_export() -> bytes:
    """Return an HTTP/2 connection that begins an export: the head, and the first bytes of a 16 KiB frame."""
    fields = b"\x83\x86\x04" + _sized(EXPORT.encode()) + b"\x0f\x10" + _sized(b"application/grpc")
    fields += b"\x00" + _sized(b"te") + _sized(b"trailers")
    head = len(fields).to_bytes(3, "big") + b"\x01\x04" + (1).to_bytes(4, "big") + fields
    data = (16_384).to_bytes(3, "big") + b"\x00\x00" + (1).to_bytes(4, "big")
    message = b"\x00" + (1 << 20).to_bytes(4, "big")
    return GREETING + SETTINGS_FRAME + head + data + message


def _sized(text: bytes) -> bytes:
    return bytes([len(text)]) + text


GRPC_OPENINGS = (b"", GREETING[:12], opened_export(), GREETING + SETTINGS_FRAME)
"""Of the same kinds as OPENINGS, the second and third of which go on byte by byte."""


@dataclass
class Tally:
    """Answers of one kind of client."""

    waits_s: list[float] = field(default_factory=list)
    failed: int = 0
    said: Counter[str] = field(default_factory=Counter)

    def row(self, name: str, seconds: float) -> str:
        """Return a line of the table."""
        waits_ms = sorted(wait * 1000 for wait in self.waits_s) or [0.0]
        p99 = waits_ms[min(len(waits_ms) - 1, len(waits_ms) * 99 // 100)]
        return (
            f"| {name} | {len(self.waits_s) / seconds:,.1f} | {statistics.median(waits_ms):,.0f} | "
            f"{p99:,.0f} | {waits_ms[-1]:,.0f} | {self.failed} |"
        )


def request_of(number: int) -> bytes:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for span in range(SPANS):
        spans.add(
            trace_id=os.urandom(16),
            span_id=os.urandom(8),
            name=f"op {span}",
            start_time_unix_nano=1_700_000_000_000_000_000 + number,
            end_time_unix_nano=1_700_000_000_005_000_000 + number,
        )
    return request.SerializeToString()


def measured(tally: Tally, stop: threading.Event, once: object, pause_s: float) -> threading.Thread:
    """Call `once` until it is told to stop, and note how long each took."""

    def run() -> None:
        while not stop.is_set():
            started = time.monotonic()
            try:
                once()  # type: ignore[operator]
            except (OSError, grpc.RpcError) as error:
                tally.failed += 1
                tally.said[str(error)[:300]] += 1
            else:
                tally.waits_s.append(time.monotonic() - started)
            stop.wait(pause_s)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def phase(url: str, address: str, seconds: float, certificate: Path | None) -> dict[str, Tally]:
    """Send and ask for a while."""
    context = None if certificate is None else ssl.create_default_context(cafile=certificate)
    tallies = {name: Tally() for name in ("export, gRPC", "export, HTTP", "query")}
    stop = threading.Event()
    with channel_to(address, certificate) as channel:
        call = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)

        def post(path: str, body: bytes, kind: str) -> None:
            request = urllib.request.Request(url + path, body, {"Content-Type": kind})  # noqa: S310 - our own
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
                answer.read()

        question = json.dumps({"query": "select count(*) from spans"}).encode()
        threads = [
            measured(tallies["export, gRPC"], stop, lambda: call(request_of(1), timeout=30), 0.01),
            measured(
                tallies["export, HTTP"],
                stop,
                lambda: post("/v1/traces", request_of(2), "application/x-protobuf"),
                0.01,
            ),
            measured(tallies["query"], stop, lambda: post("/api/sql", question, "application/json"), 0.3),
        ]
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
    return tallies


def channel_to(address: str, certificate: Path | None) -> grpc.Channel:
    if certificate is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(certificate.read_bytes()))


def certificate_in(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1 that signs itself, and its key beside it."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += [
        "-keyout",
        str(folder / "key.pem"),
        "-out",
        str(folder / "cert.pem"),
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return folder / "cert.pem"


async def hold(url: str, clients: int, openings: tuple[bytes, ...]) -> None:
    """Keep slow connections open until stdin ends, and print how many there are."""
    address = urlsplit(url)
    context = None
    if address.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        SSLProtocol.max_size = 16_384  # the clients are on this machine, too
    held: dict[int, asyncio.StreamWriter] = {}
    places = asyncio.Semaphore(200)  # connecting at a time

    async def one(number: int) -> None:
        opening = openings[number % len(openings)]
        while True:
            try:
                async with places:
                    reader, writer = await asyncio.open_connection(
                        address.hostname, address.port, ssl=context, limit=1
                    )
                    writer.write(opening)
                held[number] = writer
                while not reader.at_eof():
                    await asyncio.sleep(TRICKLE_S)
                    if number % len(openings) in {1, 2}:
                        writer.write(b"x")
                        await writer.drain()
                    if writer.is_closing():
                        break
            except OSError:
                await asyncio.sleep(1)
            finally:
                if (gone := held.pop(number, None)) is not None:
                    gone.close()

    tasks = [asyncio.create_task(one(number)) for number in range(clients)]
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    while not ended.done():
        print(len(held), flush=True)
        await asyncio.wait({ended}, timeout=1)
    for task in tasks:
        task.cancel()


def peak_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument(
        "--tls", action="store_true", help="hold the connections over TLS, to a collector that has it"
    )
    parser.add_argument("--grpc", action="store_true", help="hold connections to the gRPC port")
    parser.add_argument("--hold", metavar="URL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if args.hold:
        with suppress(KeyboardInterrupt):
            asyncio.run(hold(args.hold, args.clients, GRPC_OPENINGS if args.grpc else OPENINGS))
        return
    with tempfile.TemporaryDirectory() as folder:
        compare(args, Path(folder))


def compare(args: argparse.Namespace, folder: Path) -> None:
    """Run both phases against one collector and print the table."""
    serve = [sys.executable, "-m", "tailscope", "serve", "--data", str(folder / "data")]
    certificate = certificate_in(folder) if args.tls else None
    if certificate is not None:
        serve += ["--tls-cert", str(certificate), "--tls-key", str(folder / "key.pem")]
    server = subprocess.Popen(
        [*serve, "--grpc-port", "0", "--http-port", "0"], stderr=(folder / "log").open("w")
    )
    try:
        about = owner(folder / "data", server)
        url, address = about["url"], about["grpc"]
        before = phase(url, address, args.seconds, certificate)
        command = [sys.executable, __file__, "--clients", str(args.clients)]
        command += ["--grpc", "--hold", f"http://{address}"] if args.grpc else ["--hold", url]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            reached = ramp(holder, args.clients)
            during = phase(url, address, args.seconds, certificate)
            counted = connections_of(url, certificate)
        finally:
            holder.kill()
            holder.wait()
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        print(
            f"{args.clients:,} slow clients{' over TLS' if args.tls else ' of gRPC' if args.grpc else ''}; ",
            end="",
        )
        print(f"{reached:,} held when the measurement began; {args.seconds:g} s each")
        print("| | calls/s | p50 ms | p99 ms | max ms | failed |\n|---|---|---|---|---|---|")
        for when, tallies in (("alone", before), ("with them", during)):
            for name, tally in tallies.items():
                print(tally.row(f"{name}, {when}", args.seconds))
        for name, tally in during.items():
            for error, times in tally.said.most_common(3):
                print(f"{name}, {times} times: {error}")
        print(f"peak resident memory of the collector: {peak_mib(server.pid)} MiB")
        print("\n".join(counted))
    finally:
        server.terminate()
        server.wait(60)


def connections_of(url: str, certificate: Path | None) -> list[str]:
    """Return what the collector counts of its connections."""
    context = None if certificate is None else ssl.create_default_context(cafile=certificate)
    with urllib.request.urlopen(f"{url}/metrics", timeout=30, context=context) as page:  # noqa: S310 - our own
        lines = page.read().decode().splitlines()
    return [line for line in lines if "_connections" in line and not line.startswith("#")]


def owner(data: Path, server: subprocess.Popen[bytes]) -> dict[str, str]:
    """Wait until the collector says where it is."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError, ValueError):
            return dict(json.loads((data / "collector.json").read_text()))
        time.sleep(0.1)
    raise SystemExit("the collector did not start")


def ramp(holder: subprocess.Popen[str], clients: int) -> int:
    """Wait until nearly all connections are there, or for a minute; return how many are."""
    assert holder.stdout is not None
    deadline, held = time.monotonic() + 60, 0
    for line in holder.stdout:
        held = int(line)
        if held >= clients * 0.98 or time.monotonic() > deadline:
            break
    threading.Thread(target=holder.stdout.read, daemon=True).start()
    return held


if __name__ == "__main__":
    main()
