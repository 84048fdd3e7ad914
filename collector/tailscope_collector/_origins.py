"""Where spans come from: resource and scope, stored once per distinct pair and joined by the views.

Owns the numbering of origins and their spelling. Spans carry `origin_id` alone: five columns of text less per
span. An origin may be stored twice (after a restart, or when the memo was emptied); ids never mean two
things.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tailscope.conventions import UNKNOWN_SERVICE
from tailscope_collector._bad_text import parse
from tailscope_collector._census import check_items
from tailscope_collector._values import spell_list

if TYPE_CHECKING:
    from tailscope_collector._bad_text import Mended

NOT_OTLP: Final = "resource or scope is not OTLP"

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

OriginKey = tuple[bytes, str, bytes, str]
"""Resource and its schema URL, scope and its schema URL."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One distinct (resource, scope): its number and what the ingest path needs of it."""

    origin_id: int
    scope: str
    mended: int = 0
    """Texts in it that were repaired."""


@dataclass(slots=True)
class Origins:
    """Numbers distinct origins; `take_new` hands over the rows that are not stored yet. Not thread-safe."""

    next_id: int = 0
    _known: dict[OriginKey, Origin] = field(default_factory=dict[OriginKey, Origin])
    _new: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def of(self, key: OriginKey, mended: Mended) -> Origin:
        """Return the origin of these wire bytes; raises ValueError where they cannot be read.

        `mended` counts what was repaired in those that were not known before.
        """
        known = self._known.get(key)
        if known is not None:
            return known
        before = mended.texts
        row = _spell(*key, mended)
        row["origin_id"] = self.next_id
        origin = Origin(self.next_id, row["scope"], mended.texts - before)
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


def _spell(
    resource: bytes, resource_schema_url: str, scope: bytes, scope_schema_url: str, mended: Mended
) -> dict[str, Any]:
    # Attributes stand in a resource as they do in a key-value list.
    check_items(resource, of_list=True)
    try:
        of_resource = parse(Resource, resource, mended)
        of_scope = parse(InstrumentationScope, scope, mended)
    except DecodeError as error:
        raise ValueError(NOT_OTLP) from error
    texts, types = spell_list(of_resource.attributes)
    scope_texts, scope_types = spell_list(of_scope.attributes)
    return {
        **identity_of(texts),
        "scope": of_scope.name,
        "scope_version": of_scope.version or None,
        "resource": list(texts.items()),
        "resource_types": types,
        "resource_schema_url": resource_schema_url or None,
        "scope_attributes": list(scope_texts.items()),
        "scope_types": scope_types,
        "scope_schema_url": scope_schema_url or None,
    }


def identity_of(texts: dict[str, str | None]) -> dict[str, str | None]:
    """Return the columns service, instance and host of a resource's attributes."""
    return {
        "service": texts.get("service.name") or UNKNOWN_SERVICE,
        "instance": _first(texts, _INSTANCE),
        "host": _first(texts, _HOST),
    }


def _first(texts: dict[str, str | None], keys: tuple[str, ...]) -> str | None:
    return next((texts[key] for key in keys if texts.get(key)), None)
