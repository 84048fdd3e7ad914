"""Rows of `POST /api/sql` while they come.

Owns the reading of the stream: the metadata of its last batch says whether rows were cut (`truncated`) or why
they end too early (`error`). A stream without an end is never taken for a whole answer.
"""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailscope_analyzer._errors import QueryError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator


class RowsOverHttp:
    """Read the batches of one response; iterating raises QueryError or SourceError."""

    def __init__(self, response: Any, url: str, *, truncated: bool) -> None:
        """Read the schema of a response; `truncated` is what its head says."""
        self.truncated = truncated
        self._response = response
        self._url = url
        try:
            self._reader: Any = pa.ipc.open_stream(response)
        except (pa.ArrowInvalid, OSError, HTTPException) as error:
            self.close()
            raise SourceError(
                f"{url} did not answer with an Arrow stream. Is it a Tailscope collector?"
            ) from error
        self.schema: pa.Schema = self._reader.schema
        if (self.schema.metadata or {}).get(b"truncated") == b"true":
            self.truncated = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches that hold rows."""
        try:
            for batch, metadata in self._reader.iter_batches_with_custom_metadata():
                self._note(metadata)
                if batch.num_rows:
                    yield batch
        except (pa.ArrowException, OSError, HTTPException) as error:
            raise SourceError(
                f"The answer of {self._url} broke off; what had come is not all of it. Ask again."
            ) from error

    def close(self) -> None:
        """Close the connection, which ends the query too; safe to call twice."""
        self._response.close()

    def _note(self, metadata: Any) -> None:
        said: dict[bytes, bytes] = {} if metadata is None else metadata.to_dict()
        if b"error" in said:
            error = json.loads(said[b"error"])
            raise QueryError(str(error["message"]), code=str(error["code"]))
        if b"truncated" in said:
            self.truncated = said[b"truncated"] == b"true"
