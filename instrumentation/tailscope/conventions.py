"""The names that the four packages share: stages, categories, attribute keys, commands.

Owns the vocabulary of the public contract. Imports nothing, so that the light package stays light and every
other package may use it. A change here is a change of the contract: version bump, ADR, CHANGELOG line.
"""

from __future__ import annotations

from typing import Final

STAGES: Final = (
    "auth",
    "preprocess",
    "queue",
    "inference",
    "postprocess",
    "serialize",
    "network",
    "coldstart",
    "other",
)
"""What a request can be doing. `other` is time that belongs to no known stage."""

INFERENCE_SUBSTAGES: Final = ("h2d", "prefill", "decode", "forward", "d2h")

CATEGORIES: Final = ("self", "queue", "gpu", "host_wait", "gap", "dependency", "gc", "untraced")
"""How the time of a ledger row was spent. `untraced` is measured but unexplained; it is never smeared."""

SPAN_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
"""OTLP span kinds by their number, as `spans.kind` spells them."""

STATUSES: Final = ("unset", "ok", "error")
"""OTLP status codes by their number, as `spans.status` spells them."""

UNKNOWN_SERVICE: Final = "unknown_service"

# Attribute keys of our own (OpenTelemetry's semantic conventions are used where they exist).
STAGE: Final = "tailscope.stage"
REQUEST_ID: Final = "tailscope.request.id"
DROPPED_SPANS: Final = "tailscope.dropped.spans"
"""Spans that the process had dropped when the request began: a count that only grows. It is on the first
request after a change, so the largest per `service.instance.id` is the total."""
DROPPED_REQUESTS: Final = "tailscope.dropped.requests"
"""The same of whole requests."""
PROFILE_PATH: Final = "tailscope.profile.path"
PROFILE_KIND: Final = "tailscope.profile.kind"

GPU_TIME_MS: Final = "gpu.time_ms"
GPU_LAUNCH_MS: Final = "gpu.launch_ms"
GPU_WAIT_MS: Final = "gpu.wait_ms"
GPU_AFTER_STAGE_MS: Final = "gpu.after_stage_ms"
GPU_DEVICE: Final = "gpu.device"
LAYER_CLASS: Final = "layer.class"
GPU_UTILIZATION: Final = "gpu.utilization"
GPU_CLOCK_MHZ: Final = "gpu.clock_mhz"
GPU_TEMPERATURE_C: Final = "gpu.temperature_c"
GPU_MEMORY_USED_BYTES: Final = "gpu.memory_used_bytes"

BATCH_ID: Final = "batch.id"
BATCH_SIZE: Final = "batch.size"
BATCH_MAX_SIZE: Final = "batch.max_size"
BATCH_MAX_DELAY_MS: Final = "batch.max_delay_ms"
QUEUE_DEPTH: Final = "queue.depth"
SERVER_INFLIGHT: Final = "server.inflight"
SERVER_CONCURRENCY: Final = "server.concurrency"
MODEL_VERSION: Final = "model.version"
INPUT_SHAPE: Final = "input.shape"
INPUT_MODALITY: Final = "input.modality"
COLD_START: Final = "cold_start"
CACHE_HIT: Final = "cache.hit"
RETRY_COUNT: Final = "retry.count"
RESPONSE_BODY_BYTES: Final = "response.body.bytes"

CPU_RUN_QUEUE_MS: Final = "cpu.run_queue_ms"
CPU_THROTTLED_MS: Final = "cpu.throttled_ms"
CPU_STEAL_MS: Final = "cpu.steal_ms"
CONTAINER_CPU_LIMIT: Final = "container.cpu.limit"
HOST_CPU_COUNT: Final = "host.cpu.count"
OMP_THREADS: Final = "omp.threads"
PAGE_FAULTS_MAJOR: Final = "page_faults.major"
EVENTLOOP_LAG_MS: Final = "eventloop.lag_ms"

GC_EVENT: Final = "gc"
GC_PAUSE_MS: Final = "gc.pause_ms"
GC_GENERATION: Final = "gc.generation"
JIT_COMPILE_EVENT: Final = "jit_compile"
PREEMPTED_EVENT: Final = "preempted"
RETRY_EVENT: Final = "retry"

MODEL_LOAD_SPAN: Final = "model.load"
LORA_LOAD_SPAN: Final = "lora.load"
TLS_CONNECT_SPAN: Final = "tls.connect"

PEER_KEYS: Final = (
    "peer.service",
    "server.address",
    "net.peer.name",
    "db.system.name",
    "db.system",
    "messaging.system",
)
"""Who a call goes to, where nothing at the other end tells; the first that a span carries counts."""

DEFAULT_URL: Final = "http://127.0.0.1:4318"
DEFAULT_DATA_DIR: Final = "tailscope-data"
DEFAULT_GRPC_PORT: Final = 4317
DEFAULT_HTTP_PORT: Final = 4318
DEFAULT_DASHBOARD_PORT: Final = 8501

ENV_URL: Final = "TAILSCOPE_URL"
ENV_DATA: Final = "TAILSCOPE_DATA"

COMMANDS_GROUP: Final = "tailscope.commands"
"""Entry points `name = "module:main"`; `main(argv: list[str]) -> int` is one subcommand of `tailscope`."""

STORES_GROUP: Final = "tailscope.stores"
"""Entry point `data = "module:open_data"`; opens a data directory for a package that knows no store."""
