"""What instrumentation would have recorded of a run: a span table.

Owns names, kinds, parents and attributes of spans. Whatever is not measured in a real service is not in here:
the truth is kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope.conventions import (
    BATCH_ID,
    BATCH_MAX_DELAY_MS,
    BATCH_MAX_SIZE,
    BATCH_SIZE,
    GC_EVENT,
    GC_PAUSE_MS,
    GPU_TIME_MS,
    INPUT_SHAPE,
    MODEL_VERSION,
)
from tailscope_analyzer._schema import SPANS_SCHEMA
from tailscope_analyzer.simulate._columns import events, links, maps, text_array, texts

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer.simulate._serve import Served
    from tailscope_analyzer.simulate._world import World

START_NS: Final = 1_748_736_000_000_000_000
"""When the window begins: 2025-06-01, midnight UTC."""
ROOM: Final = 16
"""Span ids of one request."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Describe one span of every request: its place, and between the ends of which steps it lies."""

    number: int
    name: str
    parent: int | None
    begins: str
    ends: str
    stage: str | None = None
    kind: str = "internal"
    operation: str | None = None
    by_gateway: bool = False


ENTRY, CALLS, SERVER = 0, 2, 3
KINDS: Final = (
    _Kind(ENTRY, "entry", None, "arrival", "way_out", None, "server", "POST /v1/generate", True),
    _Kind(15, "client", ENTRY, "arrival", "client", "network", "internal", "network.receive", True),
    _Kind(1, "auth", ENTRY, "client", "auth", "auth", by_gateway=True),
    _Kind(CALLS, "forward", ENTRY, "auth", "way_out", None, "client", "POST /generate", True),
    _Kind(SERVER, "server", CALLS, "accept", "serialize", None, "server", "POST /generate"),
    _Kind(4, "preprocess", SERVER, "blocked", "preprocess", "preprocess"),
    _Kind(5, "connect", SERVER, "preprocess", "connect", "network", "internal", "tls.connect"),
    _Kind(6, "attempts", SERVER, "connect", "attempts", None, "client", "GET features"),
    _Kind(7, "call", SERVER, "attempts", "call", None, "client", "GET features"),
    _Kind(8, "queue", SERVER, "call", "queue", "queue"),
    _Kind(9, "load", SERVER, "queue", "load", "coldstart"),
    _Kind(10, "inference", SERVER, "load", "decode", "inference"),
    _Kind(11, "prefill", 10, "load", "prefill", "inference.prefill"),
    _Kind(12, "decode", 10, "prefill", "decode", "inference.decode"),
    _Kind(13, "postprocess", SERVER, "decode", "postprocess", "postprocess"),
    _Kind(14, "serialize", SERVER, "postprocess", "serialize", "serialize"),
)
SELDOM: Final = ("client", "connect", "attempts", "load")
"""Spans that are there only where they take time."""
PAUSED: Final = ("preprocess", "call", "prefill", "decode", "postprocess", "serialize")


def record(world: World, served: Served) -> pa.Table:
    """Return the spans of a run, the columns of SPANS_SCHEMA."""
    blocks = [block for kind in KINDS if (block := _Recorder(world, served, kind).block()) is not None]
    if world.service.batch_size > 1:
        blocks.append(_batches(world, served))
    if world.loads:
        blocks.append(_loads(world))
    return pa.concat_tables(blocks)


def trace_ids(n: int) -> pl.Series:
    """Return the trace ids of all requests."""
    return pl.select(pl.int_range(n).cast(pl.String).str.zfill(32)).to_series()


def span_ids(n: int, number: int) -> pl.Series:
    """Return the ids of one span of each request."""
    return pl.select((pl.int_range(n) * ROOM + number + 1).cast(pl.String).str.zfill(16)).to_series()


def nanoseconds(time_ms: Floats) -> Ints:
    """Return times of the run as ns since 1970."""
    since: Ints = np.rint(time_ms * 1e6).astype(np.int64)
    return since + START_NS


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Make the rows of one kind of span."""

    world: World
    served: Served
    kind: _Kind

    def block(self) -> pa.Table | None:
        world, kind, n = self.world, self.kind, len(self.world)
        alone = world.service.gateway is None
        if (alone and kind.name in ("forward", "entry")) or (world.blocking and kind.name == "queue"):
            return None
        if kind.name == "client" and not world.waits_are_spans:
            return None
        start = nanoseconds(self.served.ends[kind.begins])
        end = nanoseconds(self.served.ends[kind.ends])
        root = kind.name == ("server" if alone else "entry")
        parent = SERVER if alone and kind.name in ("auth", "client") else kind.parent
        if alone and root:
            start, end = nanoseconds(self.served.ends["arrival"]), nanoseconds(self.served.ends["way_out"])
        columns = {
            "trace_id": trace_ids(n),
            "span_id": span_ids(n, kind.number),
            "parent_span_id": texts([None] * n, n) if root or parent is None else span_ids(n, parent),
            **self._place(),
            "operation": texts(self._operation(), n),
            "kind": texts(kind.kind, n),
            "status": texts("error" if kind.name == "attempts" else "unset", n),
            "stage": texts(kind.stage, n) if kind.stage else texts([None] * n, n),
            "start_unix_nano": start,
            "duration_ns": end - start,
            "attributes": maps(self._attributes(), n),
            "events": events(self._events(start, end), n),
        }
        table = _table(columns, n)
        return table.filter(pa.array(end > start)) if kind.name in SELDOM else table

    def _operation(self) -> str:
        if self.kind.name == "load":
            return self.world.load_operation
        return self.kind.operation or self.kind.name

    def _place(self) -> dict[str, pl.Series]:
        """Return service, instance and host."""
        service, n = self.world.service, len(self.world)
        number = pl.Series(self.world.instance).cast(pl.String)
        if self.kind.by_gateway and service.gateway:
            beside = service.sidecar
            return {
                "service": texts(service.gateway, n),
                "instance": f"{service.gateway}-" + number if beside else texts(f"{service.gateway}-0", n),
                "host": "node-" + number if beside else texts("edge-0", n),
            }
        return {
            "service": texts(service.name, n),
            "instance": f"{service.name}-" + number,
            "host": "node-" + number,
        }

    def _attributes(self) -> dict[str, pl.Series]:
        n = len(self.world)
        found: dict[str, Any] = dict(self._usual().items())
        names = {self.kind.name, "entry"} if self._is_only_server() else {self.kind.name}
        for (span, key), values in self.world.states.items():
            if span in names:
                found[key] = values(self.served) if callable(values) else values
        return {key: texts(values, n) for key, values in found.items()}

    def _is_only_server(self) -> bool:
        return self.kind.name == "server" and self.world.service.gateway is None

    def _usual(self) -> dict[str, Any]:
        """Return what a healthy service says of itself."""
        world, served, service = self.world, self.served, self.world.service
        name = self.kind.name
        if name == "server":
            said = {
                "gen_ai.request.model": [f"model-{model}" for model in world.model.tolist()],
                "gen_ai.usage.input_tokens": world.input_tokens,
                "gen_ai.usage.output_tokens": world.output_tokens,
                MODEL_VERSION: [f"1.{version}" for version in world.version.tolist()],
            }
            if service.shapes:
                said[INPUT_SHAPE] = [f"1x{64 * (shape + 1)}" for shape in world.shape.tolist()]
            if service.adapters:
                said["lora.id"] = [f"adapter-{adapter}" for adapter in world.adapter.tolist()]
            return said
        if name in ("call", "attempts"):
            return {"server.address": service.peer}
        if name == "queue" and service.batch_size > 1:
            return {
                BATCH_ID: served.batch,
                BATCH_SIZE: served.batch_size,
                BATCH_MAX_SIZE: np.full(len(world), service.batch_size),
                BATCH_MAX_DELAY_MS: np.full(len(world), service.batch_delay_ms),
            }
        if name in ("prefill", "decode") and service.sends_gpu_time:
            begins = served.ends["host" if name == "prefill" else "prefill"]
            return {GPU_TIME_MS: served.ends[name] - begins}
        return {}

    def _events(self, start: Ints, end: Ints) -> list[tuple[Bools, Ints, str, dict[str, pl.Series]]]:
        n = len(self.world)
        found: list[tuple[Bools, Ints, str, dict[str, pl.Series]]] = [
            (event.struck, end, event.name, {key: texts(value, n) for key, value in event.attributes.items()})
            for event in self.world.events
            if event.span == self.kind.name
        ]
        if self.kind.name in PAUSED:
            for pause in self.world.pauses:
                stopped = int(nanoseconds(np.array([pause.end_ms]))[0])
                here = (self.world.instance == pause.instance) & (start < stopped) & (end >= stopped)
                said = {GC_PAUSE_MS: texts(f"{pause.length_ms:.3f}", n)}
                found.append((here, np.full(n, stopped), GC_EVENT, said))
        return found


def _table(columns: dict[str, Any], n: int) -> pa.Table:
    """Put columns in the order of the schema; those that are missing are null."""
    filled: list[Any] = []
    fields: Any = SPANS_SCHEMA
    for field in fields:
        values: Any = columns.get(field.name)
        if values is None:
            filled.append(pa.nulls(n, field.type))
        elif isinstance(values, pl.Series):
            series: Any = values
            filled.append(series.to_arrow().cast(field.type))
        else:
            filled.append(values if isinstance(values, pa.Array) else pa.array(values, field.type))
    return pa.table(filled, schema=SPANS_SCHEMA)


def _batches(world: World, served: Served) -> pa.Table:
    """Return a span of its own trace for each batch, with links to its members."""
    first, of = np.unique(served.batch, return_inverse=True)
    n, members = len(first), len(world)
    start, end = (nanoseconds(served.ends[step])[first] for step in ("load", "decode"))
    number = pl.Series(first).cast(pl.String)
    place = pl.Series(world.instance[first]).cast(pl.String)
    columns = {
        "trace_id": "b" + number.str.zfill(31),
        "span_id": "b" + number.str.zfill(15),
        "service": texts(world.service.name, n),
        "instance": f"{world.service.name}-" + place,
        "host": "node-" + place,
        "operation": texts("batch", n),
        "kind": texts("internal", n),
        "status": texts("unset", n),
        "start_unix_nano": start,
        "duration_ns": end - start,
        "attributes": maps({BATCH_ID: number, BATCH_SIZE: texts(served.batch_size[first], n)}, n),
        "links": links(trace_ids(members).to_list(), span_ids(members, 10).to_list(), of.astype(np.int64), n),
    }
    return _table(columns, n)


def _loads(world: World) -> pa.Table:
    """Return the traces in which instances load something beside the requests."""
    loads, n = world.loads, len(world.loads)
    start = nanoseconds(np.array([load.start_ms for load in loads]))
    end = nanoseconds(np.array([load.end_ms for load in loads]))
    keys = sorted({key for load in loads for key in load.attributes})
    said = {key: texts([load.attributes.get(key) for load in loads], n) for key in keys}
    columns: dict[str, Any] = {
        "trace_id": text_array([f"c{at:031d}" for at in range(n)]),
        "span_id": text_array([f"c{at:015d}" for at in range(n)]),
        "service": texts(world.service.name, n),
        "instance": text_array([f"{world.service.name}-{load.instance}" for load in loads]),
        "host": text_array([f"node-{load.instance}" for load in loads]),
        "operation": text_array([load.operation for load in loads]),
        "kind": texts("internal", n),
        "status": texts("unset", n),
        "stage": texts("coldstart", n),
        "start_unix_nano": start,
        "duration_ns": end - start,
        "attributes": maps(said, n),
    }
    return _table(columns, n)
