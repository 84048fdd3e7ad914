"""The trace part of OTLP as a protobuf descriptor without recursion, so that it can become Arrow columns.

Owns the list of fields. It reads the same bytes as the official schema; what is recursive (arrays and
key-value lists inside a value) or shared by many spans (resource, scope) stays undecoded bytes here, and is
decoded once per distinct value elsewhere. Never parses anything itself.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from tailscope_collector._bad_text import texts_as_bytes

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

PACKAGE: Final = "tailscope.wire"

_SCALARS: Final = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "fixed32": FieldDescriptorProto.TYPE_FIXED32,
    "fixed64": FieldDescriptorProto.TYPE_FIXED64,
}

# message: ((field, number, type), ...); "[T]" is repeated. Enums are int32: unknown numbers must survive
# parsing.
MESSAGES: Final[dict[str, tuple[tuple[str, int, str], ...]]] = {
    "AnyValue": (
        ("string_value", 1, "string"),
        ("bool_value", 2, "bool"),
        ("int_value", 3, "int64"),
        ("double_value", 4, "double"),
        ("array_value", 5, "bytes"),
        ("kvlist_value", 6, "bytes"),
        ("bytes_value", 7, "bytes"),
    ),
    "KeyValue": (("key", 1, "string"), ("value", 2, "AnyValue")),
    "Status": (("message", 2, "string"), ("code", 3, "int32")),
    "Event": (
        ("time_unix_nano", 1, "fixed64"),
        ("name", 2, "string"),
        ("attributes", 3, "[KeyValue]"),
        ("dropped_attributes_count", 4, "uint32"),
    ),
    "Link": (
        ("trace_id", 1, "bytes"),
        ("span_id", 2, "bytes"),
        ("trace_state", 3, "string"),
        ("attributes", 4, "[KeyValue]"),
        ("dropped_attributes_count", 5, "uint32"),
        ("flags", 6, "fixed32"),
    ),
    "Span": (
        ("trace_id", 1, "bytes"),
        ("span_id", 2, "bytes"),
        ("trace_state", 3, "string"),
        ("parent_span_id", 4, "bytes"),
        ("name", 5, "string"),
        ("kind", 6, "int32"),
        ("start_time_unix_nano", 7, "fixed64"),
        ("end_time_unix_nano", 8, "fixed64"),
        ("attributes", 9, "[KeyValue]"),
        ("dropped_attributes_count", 10, "uint32"),
        ("events", 11, "[Event]"),
        ("dropped_events_count", 12, "uint32"),
        ("links", 13, "[Link]"),
        ("dropped_links_count", 14, "uint32"),
        ("status", 15, "Status"),
        ("flags", 16, "fixed32"),
    ),
    "ScopeSpans": (("scope", 1, "bytes"), ("spans", 2, "[Span]"), ("schema_url", 3, "string")),
    "ResourceSpans": (
        ("resource", 1, "bytes"),
        ("scope_spans", 2, "[ScopeSpans]"),
        ("schema_url", 3, "string"),
    ),
    "ExportTraceServiceRequest": (("resource_spans", 1, "[ResourceSpans]"),),
}


@cache
def export_request_descriptor() -> Descriptor:
    """Return the descriptor of an export request; its file and pool live as long as the process."""
    return _request_of(_file())


@cache
def lenient_request_descriptor() -> Descriptor:
    """Return the same with text as bytes: it reads requests whose text is not UTF-8."""
    return _request_of(texts_as_bytes(_file()))


def _request_of(file: FileDescriptorProto) -> Descriptor:
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{PACKAGE}.ExportTraceServiceRequest")


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="tailscope/wire.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AnyValue":
            message.oneof_decl.add(name="value")
        for field_name, number, kind in fields:
            field = message.field.add(
                name=field_name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind.startswith("["):
                field.label = FieldDescriptorProto.LABEL_REPEATED
            inner = kind.strip("[]")
            if inner in _SCALARS:
                field.type = _SCALARS[inner]
            else:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{inner}"
            if name == "AnyValue":
                field.oneof_index = 0
    return file
