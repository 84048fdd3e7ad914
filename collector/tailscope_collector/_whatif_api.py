"""The route of predictions: `/api/whatif`.

Owns its parameters and its JSON, which are those of the command. Predicts nothing: the analyzer does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tailscope_analyzer import AnalyzerError, QueryError
from tailscope_collector._analyses_api import most_of
from tailscope_collector._api import error_response, selection_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from starlette.requests import Request

    from tailscope_collector._query._analyses import Analyses
    from tailscope_collector._query._turns import Turns

STAGE: Final = "stage"
"""May be given several times, once for each kind of time."""

MOST_CHANGES: Final = 12
"""Kinds of time in one question: each is predicted alone as well, and serving a queue again takes time."""

_READERS: Final[dict[str, Callable[[str], object]]] = {
    "batch_window_ms": float,
    "max_batch": int,
    "replicas": int,
    "cache_hit_rate": float,
    "cached_stage": str,
}
OTHERS: Final = tuple(_READERS)
"""What else may change, by the names of `whatif`."""


@dataclass(frozen=True, slots=True)
class Wished:
    """The changes that parameters name, as `whatif` takes them."""

    stages: tuple[str, ...]
    others: dict[str, Any]


class WhatIfApi:
    """The handler of the route."""

    def __init__(self, analyses: Analyses, *, turns: Turns) -> None:
        self._analyses = analyses
        self._turns = turns

    def routes(self) -> list[Route]:
        """Return the route."""
        return [Route("/api/whatif", self.whatif)]

    async def whatif(self, request: Request) -> Response:
        """Predict the percentiles of the newest of the selected requests under changes."""
        try:
            given, wished = wishes_of(request.query_params.multi_items())
            most = most_of(given)
            if "percentile" in given:
                raise QueryError("Predictions are of p50, p95 and p99: leave percentile out.")
            selection, _ = selection_of(given)

            def run(abandoned: threading.Event) -> str:
                found = self._analyses.whatif(
                    selection, wished.stages, most=most, abandoned=abandoned, **wished.others
                )
                return json.dumps(found, allow_nan=False)

            found = await self._turns.answer(request, run)
        except AnalyzerError as error:
            return error_response(error)
        return Response(found, media_type="application/json")


def wishes_of(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], Wished]:
    """Take the changes out of parameters and return the rest of these; raises QueryError."""
    rest: dict[str, str] = {}
    stages: list[str] = []
    others: dict[str, Any] = {}
    for name, text in pairs:
        if name == STAGE:
            stages.append(text)
        elif name in _READERS:
            others[name] = _read(name, text)
        else:
            rest[name] = text
    if len(stages) > MOST_CHANGES:
        raise QueryError(f"{len(stages)} kinds of time change; ask for at most {MOST_CHANGES} at once.")
    return rest, Wished(tuple(stages), others)


def _read(name: str, text: str) -> object:
    try:
        return _READERS[name](text)
    except ValueError as error:
        kind = "a whole number" if _READERS[name] is int else "a number"
        raise QueryError(f"{name} is {text!r}; it is {kind}.") from error
