"""Files of traces as export requests, one after the other.

Owns what is read whole and what line by line: a file of one document a line may be of any size. Recognises by
what files hold, never by their names, and sends nothing.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tailscope_collector._files._documents import Reading, document_pieces, first_ink, is_json
from tailscope_collector._files._formats import CHROME
from tailscope_collector._files._lines import line_pieces
from tailscope_collector._files._pieces import Piece
from tailscope_collector._files._trace_streams import UnreadableFileError, open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Piece", "Reading", "UnreadableFileError", "pieces"]


def pieces(name: str, reading: Reading) -> Iterator[Piece]:
    """Cut a file (`-` is stdin) into export requests.

    Raises UnreadableFileError where nothing, or nothing more, can be read of it.
    """
    for piece in _pieces(name, reading):
        if reading.under is not None and piece.form != CHROME:
            raise UnreadableFileError(
                f"is {piece.form or 'no profile'}; --under takes profiles (Chrome traces)"
            )
        yield piece


def _pieces(name: str, reading: Reading) -> Iterator[Piece]:
    with open_stream(name) as stream:
        lines = enumerate(stream, start=1)
        read: list[tuple[int, bytes]] = []
        for at in lines:
            read.append(at)
            if first_ink(at[1]):
                break
        else:
            return
        # Where there is no second line, the first one is not parsed to see what it is.
        first = read[-1][1]
        has_more = False
        for at in lines:
            read.append(at)
            has_more = bool(at[1].strip())
            if has_more:
                break
        if has_more and first_ink(first) in (b"{", b"[") and is_json(first):
            yield from line_pieces(chain(read, lines))
            return
        # Handed over, not kept: a profile goes on as text, which is as large again.
        content = [b"".join([*(line for _, line in read), stream.read()])]
        del read, first, at
        yield from document_pieces(content.pop(), reading)
