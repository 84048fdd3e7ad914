"""A real `tailscope serve` process, and asking a collector over HTTP."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

DEADLINE_S = 60


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    url: str, body: bytes | Iterator[bytes] | None = None, *, method: str | None = None, **headers: str
) -> Answer:
    """Send one request; an error status is an answer, not an exception."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, named, method=method)  # noqa: S310 - our own URL
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:  # noqa: S310
            return Answer(answer.status, answer.read(), answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), error.headers)


def post_json(url: str, tree: object, **headers: str) -> Answer:
    return call(url, json.dumps(tree).encode(), Content_Type="application/json", **headers)


def post_protobuf(url: str, body: bytes, **headers: str) -> Answer:
    return call(f"{url}/v1/traces", body, method="POST", Content_Type="application/x-protobuf", **headers)


def ask(url: str, query: str, *, limit: int | None = None) -> Any:
    """Return the JSON answer of a query."""
    answer = post_json(f"{url}/api/sql", {"query": query, "limit": limit}, Accept="application/json")
    assert answer.status == 200, answer.body
    return answer.json


def ask_rows(url: str, query: str) -> list[list[Any]]:
    return ask(url, query)["rows"]


class ServeProcess:
    """`tailscope serve` on free ports; ready when the constructor returns."""

    def __init__(self, data: Path, *flags: str, under: Sequence[str] = ()) -> None:
        command = [*under, sys.executable, "-m", "tailscope", "serve", "--data", str(data)]
        command += ["--grpc-port", "0", "--http-port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said: list[str] = []
        lines: queue.Queue[str] = queue.Queue()
        self._pump = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._pump.start()
        line = lines.get(timeout=DEADLINE_S)
        assert "OTLP/gRPC" in line, f"the collector did not start: {line}"
        self.url = line.split()[-1]
        self.grpc = line.rpartition("OTLP/gRPC ")[2].partition(",")[0]

    def _read(self, lines: queue.Queue[str]) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self.said.append(line)
                lines.put(line)
        lines.put("(nothing)")

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(DEADLINE_S)
        self._pump.join(DEADLINE_S)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
