"""What a trace file is cut into: export requests, each with where it stood and what was left out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope_collector._files._formats import OTLP_JSON
from tailscope_collector._files._slices import slices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_collector._otlp_json import JsonRequest, Refusal


@dataclass(frozen=True, slots=True)
class Piece:
    """One export request of a file, or why a part of it was refused."""

    place: str
    body: bytes = b""
    spans: int = 0
    form: str = ""
    """The format that it was recognised as."""
    refusals: tuple[Refusal, ...] = ()
    """The first of the spans that could not be read."""
    refused: int = 0
    """How many spans could not be read."""
    failure: str = ""
    """Why nothing of this part could be read."""
    note: str = ""
    """What else is to be known about how it was read."""


def pieces_of(place: str, form: str, request: JsonRequest) -> Iterator[Piece]:
    """Cut a converted request into pieces that pass the limits of a collector."""
    if form == OTLP_JSON and request.warning and not request.spans:
        yield Piece(place, form=form, failure=request.warning)
        return
    yield Piece(place, form=form, refusals=request.refusals, refused=request.refused, note=request.warning)
    for body, spans in slices(request.body, request.spans):
        yield Piece(place, body, spans, form)
