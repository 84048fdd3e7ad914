"""Files of one JSON document a line, read line by line: only one line is in memory at a time.

Owns the merging of short lines: each request costs a round trip and its share of a commit, so that 200,000
lines of one span each would take minutes. What a collector would refuse goes alone, so that its line can be
named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tailscope_collector._files._formats import recognise
from tailscope_collector._files._pieces import Piece, pieces_of
from tailscope_collector._otlp_json import parse_json
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MERGED_SPANS: Final = 1024
_MERGED_BYTES: Final = 1 << 20


@dataclass(slots=True)
class _Merged:
    """Requests of neighbouring lines that wait to be sent as one."""

    first: int = 0
    last: int = 0
    form: str = ""
    spans: int = 0
    size_bytes: int = 0
    bodies: list[bytes] = field(default_factory=list[bytes])

    def takes(self, piece: Piece) -> bool:
        """Tell whether a piece may join."""
        return (
            self.form in ("", piece.form)
            and self.spans + piece.spans <= _MERGED_SPANS
            and self.size_bytes + len(piece.body) <= _MERGED_BYTES
        )

    def add(self, number: int, piece: Piece) -> None:
        """Let a piece of a line join."""
        self.first = self.first or number
        self.last, self.form = number, piece.form
        self.spans += piece.spans
        self.size_bytes += len(piece.body)
        self.bodies.append(piece.body)

    def piece(self) -> Iterator[Piece]:
        """Yield what waits, as one; nothing where nothing does."""
        if self.bodies:
            place = f"line {self.first}" if self.first == self.last else f"lines {self.first}-{self.last}"
            yield Piece(place, b"".join(self.bodies), self.spans, self.form)


def line_pieces(numbered: Iterable[tuple[int, bytes]]) -> Iterator[Piece]:
    """Read (number, line) one by one; a line that cannot be read costs no other."""
    merged = _Merged()
    for number, line in numbered:
        if not line.strip():
            continue
        for piece, is_sound in _line(number, line):
            if not is_sound or not piece.body:
                yield piece
                continue
            if not merged.takes(piece):
                yield from merged.piece()
                merged = _Merged()
            merged.add(number, piece)
    yield from merged.piece()


def _line(number: int, line: bytes) -> Iterator[tuple[Piece, bool]]:
    place = f"line {number}"
    try:
        found = recognise(parse_json(line.removeprefix(b"\xef\xbb\xbf")))
        if found is None:
            yield Piece(place, failure="is a JSON list of nothing that is known"), False
            return
        for request in found.requests:
            for piece in pieces_of(place, found.form, request):
                yield piece, request.is_sound
    except MalformedRequestError as error:
        yield Piece(place, failure=str(error)), False
