"""Where spans come from: resource and scope, stored once per distinct pair and joined by the views.

Owns the numbering of origins and their spelling. Spans carry `origin_id` alone: five columns of text less per
span. An origin may be stored twice (after a restart, or when the memo was emptied); ids never mean two
things.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tailscope.conventions import UNKNOWN_SERVICE
from tailscope_collector._values import spell_list

MEMO_LIMIT: Final = 65_536
"""Distinct origins remembered; a sender that invents one per request costs rows, not memory."""

_MAP: Final[pa.DataType] = pa.map_(pa.string(), pa.string())
_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("origin_id", pa.int32()),
    ("service", pa.string()),
    ("instance", pa.string()),
    ("host", pa.string()),
    ("scope", pa.string()),
    ("scope_version", pa.string()),
    ("resource", _MAP),
    ("resource_types", pa.string()),
    ("resource_schema_url", pa.string()),
    ("scope_attributes", _MAP),
    ("scope_types", pa.string()),
    ("scope_schema_url", pa.string()),
]
SCHEMA: Final = pa.schema(_COLUMNS)

# First key that is there wins. Both generations of the semantic conventions.
_INSTANCE: Final = ("service.instance.id", "k8s.pod.name", "container.id")
_HOST: Final = ("host.name", "host.id", "k8s.node.name")

_Key = tuple[bytes, str, bytes, str]


@dataclass(frozen=True, slots=True)
class Origin:
    """One distinct (resource, scope): its number and what the ingest path needs of it."""

    origin_id: int
    scope: str


@dataclass(slots=True)
class Origins:
    """Numbers distinct origins; `take_new` hands over the rows that are not stored yet. Not thread-safe."""

    next_id: int = 0
    _known: dict[_Key, Origin] = field(default_factory=dict[_Key, Origin])
    _new: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def of(self, resource: bytes, resource_schema_url: str, scope: bytes, scope_schema_url: str) -> Origin:
        """Return the origin of these wire bytes; raises ValueError where they are not protobuf."""
        key = (resource, resource_schema_url, scope, scope_schema_url)
        known = self._known.get(key)
        if known is not None:
            return known
        row = _spell(*key)
        row["origin_id"] = self.next_id
        origin = Origin(self.next_id, row["scope"])
        if len(self._known) >= MEMO_LIMIT:
            self._known.clear()
        self._known[key] = origin
        self._new.append(row)
        self.next_id += 1
        return origin

    def take_new(self) -> pa.Table:
        """Return the rows that were numbered since the last call, for the transaction of their spans."""
        rows, self._new = self._new, []
        return pa.Table.from_pylist(rows, schema=SCHEMA)


def _spell(resource: bytes, resource_schema_url: str, scope: bytes, scope_schema_url: str) -> dict[str, Any]:
    try:
        of_resource = Resource.FromString(resource)
        of_scope = InstrumentationScope.FromString(scope)
    except DecodeError as error:
        raise ValueError(f"a resource or scope is not OTLP: {error}") from error
    texts, types = spell_list(of_resource.attributes)
    scope_texts, scope_types = spell_list(of_scope.attributes)
    return {
        "service": texts.get("service.name") or UNKNOWN_SERVICE,
        "instance": _first(texts, _INSTANCE),
        "host": _first(texts, _HOST),
        "scope": of_scope.name,
        "scope_version": of_scope.version or None,
        "resource": list(texts.items()),
        "resource_types": types,
        "resource_schema_url": resource_schema_url or None,
        "scope_attributes": list(scope_texts.items()),
        "scope_types": scope_types,
        "scope_schema_url": scope_schema_url or None,
    }


def _first(texts: dict[str, str | None], keys: tuple[str, ...]) -> str | None:
    return next((texts[key] for key in keys if texts.get(key)), None)
