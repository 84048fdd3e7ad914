"""Text that is not UTF-8: what is no text in it becomes U+FFFD, in columns and in single messages.

Owns the repair, which is that of `bytes.decode("utf-8", "replace")`, and its bounds. Comes in only where a
strict parser has refused: the same bytes are read again with text as plain bytes. Valid text stays as it is.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tailscope_collector import _arrow
from tailscope_collector._arrow import bytes_of, is_valid, offsets_of
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_collector._arrow import Bytes, Column

BAD_TEXT: Final = "text is not UTF-8"

MAX_WORK: Final = 1 << 20
"""Messages looked through while one chunk is read: about 1.5 s. A chunk of many requests has fewer."""

_WORK_OF_A_VALUE: Final = 4
"""What a value costs beside its messages: it is parsed three times."""

_ROWS_BYTES: Final = 1 << 20
"""Text of a column that is repaired at a time: bounds the copies, and how long the lock is held: 20 ms."""

_STEP_BYTES: Final = 256 << 10
"""Text that is repaired while the interpreter's lock is held: about 5 ms."""

_SEPARATOR: Final = 0x0A
"""Ends whatever sequence of bytes stands before it, and is never changed by the repair, as all of ASCII."""

_LARGEST: Final = np.iinfo(np.int32).max
_KEY: Final = b"tailscope.mended"
_Parsed = TypeVar("_Parsed", bound=Message)
_pa: Any = pa
_pc: Any = pc


@dataclass(slots=True)
class Mended:
    """How many texts were repaired in what is being read, and how much work that was."""

    texts: int = 0
    work: int = 0

    def spend(self, messages: int) -> None:
        """Count work; raises ValueError where it is more than what a sender may ask for."""
        self.work += messages
        if self.work > MAX_WORK:
            raise ValueError(f"{BAD_TEXT}, in more places of one request than are repaired")


def mend_batch(batch: pa.RecordBatch, descriptor: Descriptor) -> pa.RecordBatch:
    """Make a batch, read with text as bytes, what the descriptor says; it knows how many texts were repaired.

    Raises MalformedRequestError where the text is too large for a column.
    """
    mended = Mended()
    whole: Any = batch
    try:
        made: Any = _struct(whole.to_struct_array(), descriptor, mended)
    except pa.ArrowInvalid as error:
        raise MalformedRequestError(f"{BAD_TEXT} and cannot be repaired: {error}") from error
    repaired: pa.RecordBatch = _pa.RecordBatch.from_struct_array(made).replace_schema_metadata(
        {_KEY: str(mended.texts).encode()}
    )
    return repaired


def mended_texts(batch: pa.RecordBatch) -> int:
    """Return how many texts of a decoded batch were repaired."""
    return int((batch.schema.metadata or {}).get(_KEY, b"0"))


def parse(kind: type[_Parsed], raw: bytes, mended: Mended) -> _Parsed:
    """Parse one message, with its text repaired where it has to be; raises DecodeError or ValueError."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        mended.spend(_WORK_OF_A_VALUE)
        loose = _loose(kind.DESCRIPTOR).FromString(raw)
    mended.texts += _mend(loose, mended)
    again = loose.SerializeToString()
    del loose  # before it is there twice
    return kind.FromString(again)


def texts_as_bytes(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return the schema changed in place: what it calls a string is bytes."""
    messages: list[DescriptorProto] = [*file.message_type]
    for message in messages:
        messages.extend(message.nested_type)
        for field in message.field:
            if field.type == FieldDescriptorProto.TYPE_STRING:
                field.type = FieldDescriptorProto.TYPE_BYTES
    return file


@cache
def _loose(descriptor: Descriptor) -> type[Message]:
    pool = DescriptorPool()
    _add(pool, descriptor.file, set())
    return GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name))


def _add(pool: DescriptorPool, file: Any, added: set[str]) -> None:
    for other in file.dependencies:
        _add(pool, other, added)
    if file.name not in added:
        added.add(file.name)
        made = FileDescriptorProto()
        file.CopyToProto(made)
        pool.Add(texts_as_bytes(made))


def _mend(loose: Message, mended: Mended) -> int:
    """Repair a message and what is in it, in place; every bytes field that was not bytes before is text."""
    count = 0
    stack = [loose]
    while stack:
        message = stack.pop()
        mended.spend(1)
        texts = _texts_of(message.DESCRIPTOR.full_name)
        for field, value in message.ListFields():
            if field.message_type is not None:
                stack.extend(value) if field.is_repeated else stack.append(value)
            elif field.number in texts:
                count += _mend_field(message, field, value)
    return count


def _mend_field(message: Message, field: FieldDescriptor, value: Any) -> int:
    before = list(value) if field.is_repeated else [value]
    after = [text.decode("utf-8", "replace").encode() for text in before]
    if after == before:
        return 0
    if field.is_repeated:
        value[:] = after
    else:
        setattr(message, field.name, after[0])
    return sum(one != other for one, other in zip(before, after, strict=True))


@cache
def _texts_of(message: str) -> frozenset[int]:
    """Return the numbers of the fields of an OTLP message that are text."""
    fields = Default().FindMessageTypeByName(message).fields
    return frozenset(field.number for field in fields if field.type == FieldDescriptor.TYPE_STRING)


def _struct(column: Column, descriptor: Descriptor, mended: Mended) -> Column:
    made = {field.name: _field(column.field(field.name), field, mended) for field in descriptor.fields}
    fields = [column.type.field(name).with_type(child.type) for name, child in made.items()]
    missing = column.is_null() if column.null_count else None
    return _pa.StructArray.from_arrays([*made.values()], fields=fields, mask=missing)


def _field(column: Column, field: FieldDescriptor, mended: Mended) -> Column:
    if field.message_type is None:
        return _text(column, mended) if field.type == FieldDescriptor.TYPE_STRING else column
    if not field.is_repeated:
        return _struct(column, field.message_type, mended)
    items = _struct(column.values, field.message_type, mended)
    kind = pa.list_(column.type.value_field.with_type(items.type))
    return _pa.ListArray.from_arrays(column.offsets, items, type=kind)


def _text(column: Column, mended: Mended) -> Column:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        parts = [_repaired(rows) for rows in _slices(column)]
    for before, after in zip(_slices(column), parts, strict=True):
        mended.texts += _pc.sum(_pc.not_equal(before, after.cast(pa.binary()))).as_py() or 0
    return _pa.concat_arrays(parts)


def _slices(column: Column) -> Iterator[Column]:
    """Cut a column into rows that hold a few MiB together, or one row that is larger."""
    offsets = offsets_of(column)
    at = 0
    while at < len(column):
        end = int(np.searchsorted(offsets, int(offsets[at]) + _ROWS_BYTES, side="right")) - 1
        end = min(max(end, at + 1), at + _ROWS_BYTES, len(column))
        yield column.slice(at, end - at)
        at = end


def _repaired(column: Column) -> Column:
    """Repair all values of a binary column at once: laid end to end, each with a separator after it."""
    offsets, count = offsets_of(column).astype(np.int64), len(column)
    if count == 1:
        return _alone(column)
    ends = offsets[1:] - offsets[0] + np.arange(count)
    is_end = np.zeros(len(bytes_of(column)) + count, dtype=np.bool_)
    is_end[ends] = True
    joined = np.full(len(is_end), _SEPARATOR, dtype=np.uint8)
    joined[~is_end] = bytes_of(column)
    replaced = _replaced(joined)
    # Separators come out in the order in which they went in, among those that are text.
    ends = np.flatnonzero(replaced == _SEPARATOR)[is_end[joined == _SEPARATOR]]
    is_text = np.ones(len(replaced), dtype=np.bool_)
    is_text[ends] = False
    starts = np.concatenate(([0], ends - np.arange(count)))
    valid = is_valid(column) if column.null_count else None
    return _arrow.text(count, starts, replaced[is_text], valid)


def _alone(column: Column) -> Column:
    """Repair one value, which may be as large as a request."""
    replaced = _replaced(bytes_of(column))
    if len(replaced) > _LARGEST:
        raise MalformedRequestError(f"{BAD_TEXT}; repaired, a value has over {_LARGEST} bytes")
    return _arrow.text(1, np.array([0, len(replaced)]), replaced, is_valid(column))


def _replaced(joined: Bytes) -> Bytes:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    steps = range(0, len(joined), _STEP_BYTES)
    pieces = [decoder.decode(joined[at : at + _STEP_BYTES].tobytes()).encode() for at in steps]
    pieces.append(decoder.decode(b"", final=True).encode())
    return np.frombuffer(b"".join(pieces), dtype=np.uint8)
