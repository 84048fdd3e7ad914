"""A running collector: store, intake, receivers and API, put together.

Owns the order of start and stop: ports open when the store is ready; at the end receipt stops first, then
what was accepted is committed and answered, then the store is checkpointed and closed.
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self

import duckdb
from starlette.routing import Route

from tailscope_collector._analyses_api import AnalysesApi
from tailscope_collector._api import Api
from tailscope_collector._commit import Committer
from tailscope_collector._counters import Counters
from tailscope_collector._decoders import load_decoder
from tailscope_collector._directory import STORAGE_VERSION, DataDirectory, Owner
from tailscope_collector._exports import Exports
from tailscope_collector._findings import Findings
from tailscope_collector._findings_api import FindingsApi
from tailscope_collector._grpc_receiver import GrpcReceiver
from tailscope_collector._guards._connections import Bounds
from tailscope_collector._guards._descriptors import places
from tailscope_collector._guards._grpc_gate import interceptors_for
from tailscope_collector._guards._inflow import Inflow
from tailscope_collector._guards._owner_access import announce_access, withdraw_access
from tailscope_collector._guards._security import Security, guards_for
from tailscope_collector._health import Health
from tailscope_collector._http_receiver import HttpReceiver
from tailscope_collector._http_server import HttpServer
from tailscope_collector._intake import Intake
from tailscope_collector._metric_intake import MetricIntake
from tailscope_collector._openapi import OpenApi
from tailscope_collector._origins import Origins
from tailscope_collector._process import describe_process
from tailscope_collector._query._analyses import Analyses
from tailscope_collector._query._queries import Queries
from tailscope_collector._query._questions import Questions
from tailscope_collector._query._turns import Turns
from tailscope_collector._sampling._tail_sampling import Policy, TailSampling
from tailscope_collector._sealed._clock import SteadyClock
from tailscope_collector._sealed._retention import Retention
from tailscope_collector._sealed._sealing import Sealer
from tailscope_collector._sealed._upkeep import Upkeep
from tailscope_collector._settings import Settings
from tailscope_collector._settle import Settler
from tailscope_collector._span_table import SpanReader
from tailscope_collector._stages import StageOf
from tailscope_collector._store import open_store
from tailscope_collector._whatif_api import WhatIfApi
from tailscope_collector.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tailscope_analyzer import Servers

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
        security: Security | None = None,
        servers: Servers | None = None,
    ) -> None:
        settings = settings or Settings()
        guards = guards_for(host, security or Security())
        room = places(settings.max_connections)
        self.counters = Counters()
        self.store = open_store(DataDirectory(data), settings, create=True)
        undo: list[Callable[[], object]] = [self.store.close]
        try:
            reader = SpanReader(Origins(self.store.next_origin_id()), StageOf(servers), self.counters)
            self.intake = Intake(load_decoder(), reader, Committer(self.store), self.counters, settings)
            self.metrics = MetricIntake(self.store, self.counters, settings)
            exports = Exports(self.counters)
            self._settler = Settler(self.store, self.counters, servers)
            policy = Policy.of(settings)
            clock = SteadyClock()
            self._sealer = Sealer(
                self.store,
                self._settler,
                None if policy.keeps_all else TailSampling(policy, self.counters),
                now_unix_s=clock,
            )
            self._upkeep = Upkeep(
                self.store,
                self._sealer,
                Retention(
                    self.store,
                    self._settler,
                    days=settings.retain_days,
                    size_bytes=settings.retain_bytes,
                    now_unix_s=clock,
                ),
                self.counters,
                settings,
                batch_seq=lambda: self.intake.committer.batch_seq,
            )
            self.queries = Queries(self.store, settings, self.counters, self._settler.settle)
            self.health = Health(self.store, self.intake, self.metrics, self.queries, self.counters)
            self.questions = Questions(self.store, self.queries, servers)
            self._grpc = GrpcReceiver(
                self.intake,
                self.metrics,
                exports,
                Inflow(settings.inflow_bytes, timeout_s=settings.body_timeout_s),
                host=host,
                port=grpc_port,
                max_request_bytes=settings.max_request_bytes,
                interceptors=interceptors_for(guards.access, self.counters),
                credentials=None if guards.tls is None else guards.tls.grpc_credentials(),
                connections=room.grpc,
            )
            undo.append(lambda: self._grpc.stop(grace_s=0).wait())
            receiver = HttpReceiver(self.intake, self.metrics, exports, settings)
            turns = Turns(settings.max_queries, wait_s=settings.query_timeout_s)
            findings = FindingsApi(Findings(self.store, self.questions), turns=turns)
            populations = Analyses(self.queries, self.questions)
            analyses = AnalysesApi(populations, turns=turns)
            predictions = WhatIfApi(populations, turns=turns)
            api = Api(
                self.queries,
                self.questions,
                self.counters,
                turns=turns,
                about=self.about,
            )
            described = Route("/openapi.json", OpenApi(version("tailscope"), guards.access).answer)
            self.routes = [
                *_routes(receiver, api, findings, self.health),
                *analyses.routes(),
                *predictions.routes(),
                described,
            ]
            self._http = HttpServer(
                self.routes,
                host=host,
                port=http_port,
                guards=guards,
                bounds=Bounds(room.http, settings.head_timeout_s, settings.body_timeout_s),
                counters=self.counters,
            )
        except BaseException:
            for step in reversed(undo):
                step()
            raise
        self._stopped = False
        self._guards = guards
        self._open_files = room.limit
        scheme = "http" if guards.tls is None else "https"
        self.url = f"{scheme}://{_bracketed(host)}:{self._http.port}"
        self.grpc = f"{_bracketed(host)}:{self._grpc.port}"
        self._gauges()

    def start(self) -> None:
        """Begin to take spans and questions."""
        self.intake.start()
        self.metrics.start()
        self._upkeep.start()
        self._grpc.start()
        self.health.stage = "serving"
        self._http.start()
        announce_access(self.store.directory.path, self._guards)
        self.store.directory.announce(Owner(os.getpid(), self.url, self.grpc))

    def drain(self) -> None:
        """Say on `/readyz` that no more should be sent; what is sent is taken all the same, until `stop`."""
        self.health.stage = "stopping"

    def stop(self) -> None:
        """Stop receipt, commit and answer everything accepted, close the store; safe to call twice."""
        if self._stopped:
            return
        self._stopped = True
        self.drain()
        withdraw_access(self.store.directory.path)
        self.queries.close()
        self._sealer.close()
        self._settler.close()
        calls_answered = self._grpc.stop(grace_s=GRACE_S)
        self._http.stop()
        calls_answered.wait()
        self._upkeep.stop()
        self.metrics.close()
        self.intake.close()
        self.intake.committer.close()
        try:
            self.store.checkpoint()
        except (StoreError, OSError) as error:
            # The log has all of it, and the next start reads the log.
            log.warning("the log was not moved into the database file: %s", error)
        self.store.close()

    def about(self) -> dict[str, Any]:
        """Return the answer of `/api/info`: version, addresses, counts and health."""
        try:
            spans = self.store.span_count()
        except (duckdb.Error, StoreError):
            spans = None  # of a broken store everything else is asked all the more
        return {
            "version": version("tailscope"),
            "storage_version": STORAGE_VERSION,
            "data": self.store.directory.path.name,
            "url": self.url,
            "grpc": self.grpc,
            "spans": spans,
            "batch_seq": self.intake.committer.batch_seq,
            **self.health.about(),
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
        describe_process(self.counters)
        gauge("ready", "1 where spans are taken now.", lambda: not self.health.reasons())
        gauge("queue_capacity_bytes", "Bound of queue_bytes.", lambda: self.intake.settings.queue_bytes)
        gauge("disk_free_bytes", "Free room on the disk of the data directory.", self.health.free_bytes)
        gauge("queue_bytes", "Bytes of requests that are not answered yet.", lambda: self.intake.held_bytes)
        gauge("wal_bytes", "Bytes of the write-ahead log.", self.store.wal_bytes)
        gauge("open_files_limit", "Open files that this process may have.", lambda: self._open_files)
        gauge("http_connections", "Connections of the HTTP port.", lambda: len(self._http.connections))
        if (tls := self._guards.tls) is not None:
            ends = "When the certificate of both ports ends, in seconds since 1970."
            gauge("tls_certificate_expiry_timestamp_seconds", ends, lambda: tls.expires_unix_s)
        gauge("segments", "Sealed segments.", self.store.segment_count)
        gauge("segments_bytes", "Bytes of the sealed segments.", self.store.segments_bytes)
        lost = "Files of segments that are missing or damaged: answers lack what is in them."
        gauge("segment_files_lost", lost, self.store.segments.lost_count)
        gauge("batch_seq", "Number of the last committed batch.", lambda: self.intake.committer.batch_seq)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _routes(receiver: HttpReceiver, api: Api, findings: FindingsApi, health: Health) -> list[Route]:
    return [
        Route("/v1/traces", receiver.traces, methods=["POST"]),
        Route("/v1/metrics", receiver.metrics, methods=["POST"]),
        Route("/v1/logs", receiver.logs, methods=["POST"]),
        Route("/api/v2/spans", receiver.zipkin, methods=["POST"]),
        Route("/api/sql", api.sql, methods=["POST"]),
        Route("/api/info", api.info),
        Route("/api/report", api.report),
        *findings.routes(),
        *api.jaeger.routes(),
        Route("/healthz", health.healthz),
        Route("/readyz", health.readyz),
        Route("/metrics", api.metrics),
    ]
