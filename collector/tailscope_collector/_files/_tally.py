"""What became of the files of an import, for people to read.

Owns the counts and the sentences. Never reads or sends anything.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_collector._files._pieces import Piece
    from tailscope_collector._intake import Outcome

SHOWN_REFUSALS: Final = 20
SHOWN_FILES: Final = 100


@dataclass(slots=True)
class _File:
    """What one file was recognised as, and what is to be known about it."""

    spans: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Tally:
    """What became of the spans and export requests of all files; thread-safe."""

    spans: int = 0
    requests: int = 0
    refused_files: int = 0
    refused_requests: int = 0
    refused_spans: int = 0
    refusals: list[str] = field(default_factory=list[str])
    """The first refusals, each with its place and reason."""
    refusals_counted: int = 0
    files: dict[str, _File] = field(default_factory=dict[str, _File])
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def refuse_file(self, name: str, reason: str) -> None:
        """Note that nothing more of a file can be read, and why."""
        with self._guard:
            self.refused_files += 1
            self._refuse(f"{name}: {reason}")

    def take(self, name: str, piece: Piece) -> None:
        """Note what was read of a file, apart from its spans."""
        where = f"{name}, {piece.place}" if piece.place else name
        with self._guard:
            if piece.form:
                file = self.files.setdefault(name, _File())
                file.spans[piece.form] += 0
                if piece.note:
                    file.notes.append(piece.note)
            if piece.failure:
                self.refused_requests += 1
                self._refuse(f"{where}: {piece.failure}")
            self.refused_spans += piece.refused
            for refusal in piece.refusals:
                self._refuse(f"{where}, {refusal.place}: {refusal.reason}")
            self.refusals_counted += piece.refused - len(piece.refusals)

    def answer(self, name: str, piece: Piece, outcome: Outcome) -> None:
        """Note the answer to the request of a piece."""
        where = f"{name}, {piece.place}" if piece.place else name
        with self._guard:
            if outcome.error is not None:
                self.refused_requests += 1
                self._refuse(f"{where}: {outcome.error}")
                return
            stored = piece.spans - outcome.rejected
            self.requests += 1
            self.spans += stored
            self.files.setdefault(name, _File()).spans[piece.form] += stored
            self.refused_spans += outcome.rejected
            if outcome.rejected:
                self._refuse(f"{where}: {outcome.message}")

    def _refuse(self, sentence: str) -> None:
        self.refusals_counted += 1
        if len(self.refusals) < SHOWN_REFUSALS:
            self.refusals.append(sentence)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was refused."""
        return not (self.refused_files or self.refused_requests or self.refused_spans)

    def sentences(self, files: int, place: str, duplicates: int) -> Iterator[str]:
        """Yield what to say at the end: refusals, files, the sum."""
        yield from self.refusals
        if (more := self.refusals_counted - len(self.refusals)) > 0:
            yield f"... and {more:,} more"
        for name, file in list(self.files.items())[:SHOWN_FILES]:
            read = "; ".join(f"{form}, {count(spans, 'span')}" for form, spans in file.spans.items())
            yield "; ".join([f"{name}: {read}", *file.notes])
        if (more := len(self.files) - SHOWN_FILES) > 0:
            yield f"... and {count(more, 'file')} more"
        said = f"Imported {count(self.spans, 'span')} in {count(self.requests, 'export request')} "
        said += f"of {count(files, 'file')} into {place}"
        if duplicates:
            said += f", where {duplicates:,} of them stood already"
        counts = {"file": self.refused_files, "request": self.refused_requests, "span": self.refused_spans}
        if refused := [count(number, noun) for noun, number in counts.items() if number]:
            said += f"; refused {', '.join(refused)}"
        yield f"{said}."


def count(number: int, noun: str) -> str:
    """Spell a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
