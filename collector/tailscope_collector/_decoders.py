"""Protobuf bytes of export requests to one Arrow batch: a row per request, nested as on the wire.

Owns the choice between two decoders that give the same batch: `ptars` (Rust; 0.6-0.7 M spans/s) and the
official protobuf runtime (about 50 times slower, for where ptars cannot be installed). Never looks into the
columns. Text that is not UTF-8 costs nobody else's spans: see `_bad_text`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tailscope_collector._arrow import array
from tailscope_collector._bad_text import mend_batch
from tailscope_collector._groups import check_groups
from tailscope_collector._wire import export_request_descriptor, lenient_request_descriptor
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DecoderName = Literal["ptars", "protobuf"]
DECODERS: Final[tuple[DecoderName, ...]] = ("ptars", "protobuf")


class Decoder(Protocol):
    """Turns the bodies of export requests into one record batch, a row per body, in order."""

    def __call__(self, bodies: Sequence[bytes], /) -> pa.RecordBatch:
        """Decode all or raise MalformedRequestError (which does not say whose body it was)."""
        ...


def load_decoder(name: DecoderName | None = None) -> Decoder:
    """Return the named decoder, or the fastest one that is installed."""
    if name == "protobuf":
        return decode_with_protobuf
    try:
        return _ptars_decoder()
    except ImportError:
        if name == "ptars":
            raise
        return decode_with_protobuf


@cache
def _ptars_decoder() -> Decoder:
    import ptars

    pool: Any = ptars.HandlerPool  # it has no types
    handlers: dict[Descriptor, Any] = {}

    def read(descriptor: Descriptor, bodies: list[bytes]) -> pa.RecordBatch:
        if descriptor not in handlers:
            handlers[descriptor] = pool([descriptor.file]).get_for_message(descriptor)
        try:
            batch: pa.RecordBatch = handlers[descriptor].list_to_record_batch(bodies)
        except ValueError as error:
            raise MalformedRequestError(f"not an OTLP trace export request: {error}") from error
        except BaseException as error:
            # A panic of the Rust side is no Exception; uncaught, it would end the decoder thread.
            if type(error).__name__ != "PanicException":
                raise
            raise MalformedRequestError(f"not an OTLP trace export request: {error}") from error
        return batch

    return lambda bodies, /: _decode(list(bodies), read)


def decode_with_protobuf(bodies: Sequence[bytes], /) -> pa.RecordBatch:
    """Decode with the official protobuf runtime."""
    return _decode(list(bodies), _read_with_protobuf)


def _decode(bodies: list[bytes], read: Callable[[Descriptor, list[bytes]], pa.RecordBatch]) -> pa.RecordBatch:
    for body in bodies:
        check_groups(body)
    try:
        return read(export_request_descriptor(), bodies)
    except MalformedRequestError:
        # What is wrong may be one text that is not UTF-8. Anything else is refused again.
        lenient = read(lenient_request_descriptor(), bodies)
    return mend_batch(lenient, export_request_descriptor())


def _read_with_protobuf(descriptor: Descriptor, bodies: list[bytes]) -> pa.RecordBatch:
    parse = GetMessageClass(descriptor).FromString
    try:
        rows = [_struct(parse(body)) for body in bodies]
    except DecodeError as error:
        raise MalformedRequestError(f"not an OTLP trace export request: {error}") from error
    return pa.RecordBatch.from_struct_array(array(rows, pa.struct(_arrow_fields(descriptor))))


_ARROW: Final[dict[int, pa.DataType]] = {
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_UINT32: pa.uint32(),
    FieldDescriptor.TYPE_FIXED32: pa.uint32(),
    FieldDescriptor.TYPE_FIXED64: pa.uint64(),
}


def _arrow_fields(descriptor: Descriptor) -> list[pa.Field[Any]]:
    fields: list[pa.Field[Any]] = []
    for field in descriptor.fields:
        inner: pa.DataType = (
            pa.struct(_arrow_fields(field.message_type))
            if field.message_type is not None
            else _ARROW[field.type]
        )
        fields.append(pa.field(field.name, pa.list_(inner) if field.is_repeated else inner))
    return fields


def _struct(message: Message) -> dict[str, Any]:
    """Spell a message as pyarrow reads it: absent messages and members of a oneof are null."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            values[field.name] = [item if field.message_type is None else _struct(item) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            values[field.name] = None
        else:
            values[field.name] = _struct(value) if field.message_type is not None else value
    return values
