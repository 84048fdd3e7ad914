"""The bytes of a trace file: a file or stdin, unpacked where it is packed.

Owns opening and unpacking, and the words for what cannot be read. Never looks at what the bytes say.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from tailscope_collector.errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Generator

STDIN: Final = "-"
_GZIP: Final = b"\x1f\x8b"


class UnreadableFileError(CollectorError):
    """A file, or the rest of one, that cannot be imported; the message says why."""


@contextmanager
def open_stream(name: str) -> Generator[BinaryIO]:
    """Open a file or stdin, gunzipped where it is gzipped.

    Raises UnreadableFileError, also while it is read.
    """
    try:
        with nullcontext(sys.stdin.buffer) if name == STDIN else Path(name).open("rb") as raw:
            # Something that one can look ahead in; stdin may be anything.
            stream = io.BufferedReader(cast("io.RawIOBase", raw))
            if stream.peek(len(_GZIP)).startswith(_GZIP):
                yield cast("BinaryIO", io.BufferedReader(gzip.GzipFile(fileobj=stream)))
            else:
                yield cast("BinaryIO", stream)
    except IsADirectoryError as error:
        raise UnreadableFileError("is a directory; name its files") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableFileError(f"is not whole gzip: {error}") from error
    except OSError as error:
        raise UnreadableFileError(error.strerror or str(error)) from error
