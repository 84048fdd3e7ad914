"""Answers to SQL as bytes, part by part: an Arrow IPC stream, or JSON.

Owns how an answer says at its end whether rows were cut, and how one that breaks off can never be taken for a
whole one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from tailscope_collector._query._json_rows import json_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_analyzer import QueryError
    from tailscope_collector._query._queries import Rows

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"

JSON_ROWS: Final = 1_000
"""Rows that are encoded at a time, at most: the encoder holds the interpreter's lock, exports wait for it."""

JSON_BYTES: Final = 1 << 20
"""Bytes of rows that are encoded at a time, about."""

BROKEN_OFF: Final = b"\xff\xff\xff\xff\x00\x01\x00\x00"
"""The head of a message of 256 bytes that does not follow. An Arrow stream that just ends is a legal one."""


class Parts(Protocol):
    """Make one answer; the parts in the order of the methods."""

    media_type: str

    def head(self) -> bytes:
        """Begin."""
        ...

    def rows(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Spell some rows."""
        ...

    def tail(self, *, truncated: bool) -> bytes:
        """End a whole answer."""
        ...

    def broken(self, error: QueryError) -> bytes:
        """End an answer that cannot be finished, so that every reader fails."""
        ...


class ArrowParts:
    """An Arrow IPC stream. Its last batch is empty and has the metadata `truncated`, or `error`."""

    media_type: str = ARROW_STREAM

    def __init__(self, rows: Rows) -> None:
        self._schema = rows.schema
        self._sink = _Sink()
        file: Any = self._sink  # Arrow asks for less of a file than its stubs say
        self._writer: Any = pa.ipc.new_stream(pa.PythonFile(file, "w"), rows.schema)

    def head(self) -> bytes:
        """Return the schema."""
        return self._sink.taken()

    def rows(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the batch as one message."""
        self._writer.write_batch(batch)
        yield self._sink.taken()

    def tail(self, *, truncated: bool) -> bytes:
        """Return the empty batch that says whether rows were cut, and the end."""
        self._last({"truncated": "true" if truncated else "false"})
        self._writer.close()
        return self._sink.taken()

    def broken(self, error: QueryError) -> bytes:
        """Return an empty batch with the error, then half a message."""
        self._last({"error": json.dumps(_said(error))})
        return self._sink.taken() + BROKEN_OFF

    def _last(self, metadata: dict[str, str]) -> None:
        fields: Any = self._schema  # its stubs do not say what it yields
        batch: Any = pa.RecordBatch
        empty = batch.from_arrays([pa.nulls(0, field.type) for field in fields], schema=self._schema)
        self._writer.write_batch(empty, custom_metadata=metadata)


class JsonParts:
    """`{"columns", "types", "rows", "truncated"}`; broken off, `"error"` and no closing bracket."""

    media_type: str = "application/json"

    def __init__(self, rows: Rows) -> None:
        self._head = dumped({"columns": rows.schema.names, "types": rows.types})
        self._comma = b""

    def head(self) -> bytes:
        """Return columns and types."""
        return self._head[:-1] + b',"rows":['

    def rows(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the rows, a bounded number at a time."""
        count = batch.num_rows
        step = max(1, min(JSON_ROWS, count * JSON_BYTES // max(batch.nbytes, 1)))
        for start in range(0, count, step):
            table = pa.Table.from_batches([batch.slice(start, step)])
            yield self._comma + dumped(json_rows(table))[1:-1]
            self._comma = b","

    def tail(self, *, truncated: bool) -> bytes:
        """Return whether rows were cut."""
        return b'],"truncated":' + (b"true}" if truncated else b"false}")

    def broken(self, error: QueryError) -> bytes:
        """Return the error, and leave the object open: no parser takes it."""
        return b'],"error":' + dumped(_said(error))


class _Sink:
    """A file for Arrow to write to, emptied after each message."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, part: Any) -> int:
        taken = bytes(part)
        self._written.append(taken)
        return len(taken)

    def flush(self) -> None:
        """Do nothing: it is memory."""

    def close(self) -> None:
        """Do nothing: what was written is still to be taken."""

    def taken(self) -> bytes:
        written, self._written = self._written, []
        return b"".join(written)


def dumped(content: object) -> bytes:
    """Return compact JSON; half surrogates become question marks."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _said(error: QueryError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}
