"""The routes about whole populations: `/api/compare` and `/api/load`.

Owns their parameters and their JSON, which are those of the commands.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from starlette.responses import Response
from starlette.routing import Route

from tailscope_analyzer import AnalyzerError, QueryError, Selection
from tailscope_collector._api import error_response, selection_of
from tailscope_collector._query._analyses import MOST, MOST_OF_ALL

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

    from starlette.requests import Request

    from tailscope_collector._query._analyses import Analyses
    from tailscope_collector._query._turns import Turns

SIDES: Final = ("baseline", "candidate")
OF_A_SIDE: Final = ("service", "operation", "where", "since", "until")
"""What may be said of both sides and, as `baseline_where` or `candidate_since`, of one."""


class AnalysesApi:
    """The handlers of the routes about populations."""

    def __init__(self, analyses: Analyses, *, turns: Turns) -> None:
        self._analyses = analyses
        self._turns = turns

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/api/compare", self.compare), Route("/api/load", self.load)]

    async def compare(self, request: Request) -> Response:
        """Say what became slower from the baseline to the candidate."""
        try:
            given = dict(request.query_params)
            most = most_of(given)
            baseline, candidate, percentile = sides_of(given)

            def run(abandoned: threading.Event) -> str:
                found = self._analyses.compare(
                    baseline, candidate, percentile=percentile, most=most, abandoned=abandoned
                )
                return found.to_json()

            found = await self._turns.answer(request, run)
        except AnalyzerError as error:
            return error_response(error)
        return Response(found, media_type="application/json")

    async def load(self, request: Request) -> Response:
        """Answer the load curve of the newest of the selected requests."""
        try:
            given = dict(request.query_params)
            most = most_of(given)
            if "percentile" in given:
                raise QueryError("A load curve has no percentile: leave it out.")
            selection, _ = selection_of(given)

            def run(abandoned: threading.Event) -> str:
                return json.dumps(
                    self._analyses.load(selection, most=most, abandoned=abandoned), allow_nan=False
                )

            found = await self._turns.answer(request, run)
        except AnalyzerError as error:
            return error_response(error)
        return Response(found, media_type="application/json")


def sides_of(given: Mapping[str, str]) -> tuple[Selection, Selection, float]:
    """Return both sides and the percentile that parameters name; raises QueryError or InputError."""
    shared = {
        name: text for name, text in given.items() if not name.startswith(tuple(f"{s}_" for s in SIDES))
    }
    named = {side: _of_one(given, side) for side in SIDES}
    unknown = sorted(f"{side}_{name}" for side in SIDES for name in set(named[side]) - set(OF_A_SIDE))
    if unknown:
        raise QueryError(f"No such parameter: {', '.join(unknown)}. A side has: {', '.join(OF_A_SIDE)}.")
    if named["baseline"] == named["candidate"]:
        raise QueryError(
            "Both sides are the same requests. Say how they differ, such as "
            "baseline_where=version = '1' and candidate_where=version = '2'."
        )
    (baseline, percentile), (candidate, _) = (selection_of(_both(shared, named[side])) for side in SIDES)
    return baseline, candidate, percentile


def _of_one(given: Mapping[str, str], side: str) -> dict[str, str]:
    start = f"{side}_"
    return {name.removeprefix(start): text for name, text in given.items() if name.startswith(start)}


def _both(shared: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Join what is said of both sides with what is said of one, which wins; both conditions must hold."""
    joined = {**shared, **own}
    conditions = [text for text in (shared.get("where"), own.get("where")) if text and text.strip()]
    if conditions:
        # The line break ends a comment in somebody's text before it can swallow the bracket.
        joined["where"] = " and ".join(f"({text}\n)" for text in conditions)
    return joined


def most_of(given: dict[str, str]) -> int:
    """Take out how many requests of a side are read at most."""
    text = given.pop("most", str(MOST))
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_OF_ALL))):
        raise QueryError(f"most is {text!r}; it is a whole number of requests up to {MOST_OF_ALL:,}.")
    if not 1 <= int(text) <= MOST_OF_ALL:
        raise QueryError(f"most is {text}; it lies between 1 and {MOST_OF_ALL:,}.")
    return int(text)
