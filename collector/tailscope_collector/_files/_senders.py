"""Where imported requests go: a collector over HTTP, or a store that this process holds.

Owns waiting, sending again and showing the ingest token. Never reads a file of traces.
"""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Final, Protocol

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tailscope_analyzer._client import LOOPBACK
from tailscope_analyzer._credentials import Credentials, for_owner
from tailscope_collector._commit import Committer
from tailscope_collector._counters import Counters
from tailscope_collector._decoders import load_decoder
from tailscope_collector._directory import DataDirectory
from tailscope_collector._intake import Intake, Outcome
from tailscope_collector._origins import Origins
from tailscope_collector._rpc_status import read_message
from tailscope_collector._settings import Settings
from tailscope_collector._span_table import SpanReader
from tailscope_collector._stages import stage_of_span
from tailscope_collector._store import open_store
from tailscope_collector.errors import (
    CollectorError,
    MalformedRequestError,
    OverloadedError,
    StoreHeldError,
    StoreUnavailableError,
)

CALLS: Final = 8
"""Requests in flight to a collector: it commits every 50 ms, so one at a time would be 20 requests a
second."""

IN_FLIGHT: Final = 256
"""Requests in flight to a store in this process."""

MEMORY_MB: Final = 192
"""Memory of DuckDB in an import: nobody asks meanwhile, so what it keeps from the disk saves nothing."""

QUEUE_MB: Final = 16

TRIES: Final = 30
ANSWER_S: Final = 120
RETRYABLE: Final = frozenset({429, 502, 503, 504})

Done = Callable[[Outcome], None]


class Sender(Protocol):
    """Takes export requests; `close` returns when all of them are answered."""

    place: str
    """The directory or URL that they go to."""

    def duplicates(self) -> int:
        """Return how many spans were stored already, as far as that is known here."""
        ...

    def send(self, body: bytes, done: Done) -> None:
        """Send one request, waiting while too many are in flight; `done` is called once, from any thread."""
        ...

    def close(self) -> None:
        """Wait for the answers and let go; safe to call twice."""
        ...


class StoreSender:
    """Commits to a store that this process holds."""

    def __init__(self, directory: DataDirectory) -> None:
        settings = Settings(memory_mb=MEMORY_MB, queue_mb=QUEUE_MB)
        self.place = str(directory.path)
        self.counters = Counters()
        self._store = open_store(directory, settings, create=True)
        reader = SpanReader(Origins(self._store.next_origin_id()), stage_of_span)
        self._intake = Intake(load_decoder(), reader, Committer(self._store), self.counters, settings)
        self._slots = threading.Semaphore(IN_FLIGHT)
        self._answered = threading.Condition()
        self._intake.start()

    def duplicates(self) -> int:
        """Return how many spans were stored already."""
        return int(self.counters.value("spans_duplicate_total"))

    def send(self, body: bytes, done: Done) -> None:
        """Queue one request."""
        self._slots.acquire()

        def answered(outcome: Outcome) -> None:
            done(outcome)
            self._slots.release()
            with self._answered:
                self._answered.notify_all()

        with self._answered:
            while True:
                try:
                    self._intake.submit(body, answered)
                except OverloadedError:
                    self._answered.wait(timeout=1)
                else:
                    return

    def close(self) -> None:
        """Commit everything and close the store."""
        self._intake.close()
        self._intake.committer.close()
        self._store.close()


class HttpSender:
    """Posts to a collector."""

    def __init__(self, url: str, given: Credentials) -> None:
        self.place = url.rstrip("/")
        self._url = self.place + "/v1/traces"
        self._given = given
        parts = urllib.parse.urlsplit(url)
        handlers: list[urllib.request.BaseHandler] = []
        if parts.hostname in LOOPBACK:
            # A proxy from the environment cannot reach this machine's own loopback.
            handlers.append(urllib.request.ProxyHandler({}))
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=given.tls()))
        self._opener = urllib.request.build_opener(*handlers)
        self._pool = ThreadPoolExecutor(CALLS, thread_name_prefix="tailscope-import")
        self._slots = threading.Semaphore(2 * CALLS)

    def duplicates(self) -> int:
        """Return 0: a collector counts them in its own metrics."""
        return 0

    def send(self, body: bytes, done: Done) -> None:
        """Post one request from a thread of the pool."""
        self._slots.acquire()
        self._pool.submit(self._post, body, done)

    def close(self) -> None:
        """Wait for all answers."""
        self._pool.shutdown()

    def _post(self, body: bytes, done: Done) -> None:
        try:
            done(self._outcome(body))
        finally:
            self._slots.release()

    def _outcome(self, body: bytes) -> Outcome:
        """Post until it is stored or refused for good; a busy collector is asked again for 30 s."""
        reason = ""
        for _ in range(TRIES):
            try:
                answer = ExportTraceServiceResponse.FromString(self._answer(body))
            except urllib.error.HTTPError as error:
                reason = _message(error)
                if error.code not in RETRYABLE:
                    return Outcome(error=MalformedRequestError(reason))
            except (OSError, HTTPException, DecodeError, UnicodeError) as error:
                return Outcome(error=StoreUnavailableError(f"no collector answers at {self._url}: {error}"))
            else:
                partial = answer.partial_success
                return Outcome(int(partial.rejected_spans), partial.error_message)
            time.sleep(1)
        return Outcome(error=StoreUnavailableError(reason))

    def _answer(self, body: bytes) -> bytes:
        # open_sender has checked that the URL is http or https.
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/x-protobuf"})  # noqa: S310
        for name, value in self._given.headers().items():
            # A redirect may lead to another host, which must not learn the token.
            request.add_unredirected_header(name, value)
        with self._opener.open(request, timeout=ANSWER_S) as response:
            return bytes(response.read())


def _message(error: urllib.error.HTTPError) -> str:
    return read_message(error.read()) or f"{error.code} {error.reason}"


def open_sender(url: str | None, data: str, given: Credentials) -> Sender:
    """Return the way to a collector at the URL, or to a data directory, whoever holds it.

    Raises CollectorError, or the analyzer's InputError for certificates that cannot be used.
    """
    if url:
        if not url.startswith(("http://", "https://")):
            raise CollectorError(f"Not a collector's URL: {url!r}. It looks like http://127.0.0.1:4318.")
        return HttpSender(url, given)
    directory = DataDirectory(data)
    try:
        return StoreSender(directory)
    except StoreHeldError:
        owner = directory.owner()
        if owner is None:
            raise
        return HttpSender(owner.url, for_owner(directory.path, side="ingest", given=given))
