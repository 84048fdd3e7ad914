"""A running collector: store, intake, receivers and API, put together.

Owns the order of start and stop: ports open when the store is ready; at the end receipt stops first, then
what was accepted is committed and answered, then the store is checkpointed and closed.
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self

from starlette.routing import Route

from tailscope_collector._api import Api
from tailscope_collector._commit import Committer
from tailscope_collector._counters import Counters
from tailscope_collector._decoders import load_decoder
from tailscope_collector._directory import STORAGE_VERSION, DataDirectory, Owner
from tailscope_collector._grpc_receiver import GrpcReceiver
from tailscope_collector._http_receiver import HttpReceiver
from tailscope_collector._http_server import HttpServer
from tailscope_collector._intake import Intake
from tailscope_collector._origins import Origins
from tailscope_collector._queries import Queries
from tailscope_collector._questions import Questions
from tailscope_collector._settings import Settings
from tailscope_collector._settle import Settler
from tailscope_collector._span_table import SpanReader
from tailscope_collector._stages import stage_of_span
from tailscope_collector._store import open_store
from tailscope_collector._turns import Turns
from tailscope_collector.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

log = logging.getLogger(__name__)

GRACE_S: Final = 5.0
"""How long calls in progress may take to be answered when the collector stops."""


class Collector:
    """A collector on a data directory; a context manager that stops it."""

    def __init__(
        self,
        data: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        grpc_port: int = 0,
        http_port: int = 0,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        self.counters = Counters()
        self.store = open_store(DataDirectory(data), settings, create=True)
        undo: list[Callable[[], object]] = [self.store.close]
        try:
            reader = SpanReader(Origins(self.store.next_origin_id()), stage_of_span)
            self.intake = Intake(load_decoder(), reader, Committer(self.store), self.counters, settings)
            self._settler = Settler(self.store, self.counters)
            self.queries = Queries(self.store, settings, self.counters, self._settler.settle)
            self.questions = Questions(self.store, self.queries)
            self._grpc = GrpcReceiver(
                self.intake, host=host, port=grpc_port, max_request_bytes=settings.max_request_bytes
            )
            undo.append(lambda: self._grpc.stop(grace_s=0).wait())
            receiver = HttpReceiver(self.intake, settings)
            api = Api(
                self.queries,
                self.questions,
                self.counters,
                turns=Turns(settings.max_queries, wait_s=settings.query_timeout_s),
                is_ready=lambda: self._ready,
                is_broken=lambda: self.intake.is_broken,
                about=self.about,
            )
            self._http = HttpServer(_routes(receiver, api), host=host, port=http_port)
        except BaseException:
            for step in reversed(undo):
                step()
            raise
        self._ready = False
        self._stopped = False
        self.url = f"http://{_bracketed(host)}:{self._http.port}"
        self.grpc = f"{_bracketed(host)}:{self._grpc.port}"
        self._gauges()

    def start(self) -> None:
        """Begin to take spans and questions."""
        self.intake.start()
        self._grpc.start()
        self._ready = True
        self._http.start()
        self.store.directory.announce(Owner(os.getpid(), self.url, self.grpc))

    def stop(self) -> None:
        """Stop receipt, commit and answer everything accepted, close the store; safe to call twice."""
        if self._stopped:
            return
        self._stopped = True
        self._ready = False
        self.queries.close()
        self._settler.close()
        calls_answered = self._grpc.stop(grace_s=GRACE_S)
        self._http.stop()
        calls_answered.wait()
        self.intake.close()
        self.intake.committer.close()
        try:
            self.store.checkpoint()
        except (StoreError, OSError) as error:
            # The log has all of it, and the next start reads the log.
            log.warning("the log was not moved into the database file: %s", error)
        self.store.close()

    def about(self) -> dict[str, Any]:
        """Return the answer of `/api/info`: version, addresses and counts."""
        return {
            "version": version("tailscope"),
            "storage_version": STORAGE_VERSION,
            "data": self.store.directory.path.name,
            "url": self.url,
            "grpc": self.grpc,
            "spans": self.store.span_count(),
            "batch_seq": self.intake.committer.batch_seq,
        }

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _gauges(self) -> None:
        gauge = self.counters.gauge
        gauge("queue_bytes", "Bytes of requests that are not answered yet.", lambda: self.intake.held_bytes)
        gauge("wal_bytes", "Bytes of the write-ahead log.", self.store.wal_bytes)
        gauge("batch_seq", "Number of the last committed batch.", lambda: self.intake.committer.batch_seq)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _routes(receiver: HttpReceiver, api: Api) -> list[Route]:
    return [
        Route("/v1/traces", receiver.export, methods=["POST"]),
        Route("/api/sql", api.sql, methods=["POST"]),
        Route("/api/info", api.info),
        Route("/api/report", api.report),
        Route("/api/traces/{trace_id}", api.trace),
        Route("/healthz", api.healthz),
        Route("/readyz", api.readyz),
        Route("/metrics", api.metrics),
    ]
