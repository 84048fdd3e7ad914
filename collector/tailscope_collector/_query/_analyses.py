"""Comparisons, load curves and predictions, asked of the store.

Owns how many requests they are made from: of more than asked for, a comparison takes stretches of
each side, a load curve and a prediction the newest. Computes nothing: the analyzer does.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer import Comparison, Selection, compare, load_curve, whatif
from tailscope_collector._query._sample import sample

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from tailscope_analyzer import Traces
    from tailscope_collector._query._queries import Queries
    from tailscope_collector._query._questions import Questions
    from tailscope_collector._query._sample import Sample

MOST: Final = 10_000
"""Requests of a side, or of a load curve, unless asked otherwise: a second or two of one core."""

MOST_OF_ALL: Final = 200_000
"""What may be asked for."""


class Analyses:
    """Answers about whole populations; thread-safe."""

    def __init__(self, queries: Queries, questions: Questions) -> None:
        self._queries = queries
        self._questions = questions

    def compare(
        self,
        baseline: Selection,
        candidate: Selection,
        *,
        percentile: float,
        most: int = MOST,
        abandoned: threading.Event | None = None,
    ) -> Comparison:
        """Say what became slower from one selection to another; raises QueryError or InputError."""
        chosen = [
            sample(self._queries, side, most=most, abandoned=abandoned) for side in (baseline, candidate)
        ]
        before, after = (
            self._questions.traces(side, sample=of_side, abandoned=abandoned)
            for side, of_side in zip((baseline, candidate), chosen, strict=True)
        )
        found = compare(before, after, percentile=percentile)
        said = (
            note
            for name, of_side in zip(("baseline", "candidate"), chosen, strict=True)
            for note in _thinned(name, of_side)
        )
        return replace(found, notes=(*found.notes, *said))

    def load(
        self, selection: Selection, *, most: int = MOST, abandoned: threading.Event | None = None
    ) -> dict[str, Any]:
        """Return the load curve of the newest of the selected requests; raises QueryError."""
        traces, selected = self._newest_traces(selection, most, abandoned)
        return {"selected": selected, "start_unix_nano": _first_start(traces), **asdict(load_curve(traces))}

    def whatif(
        self,
        selection: Selection,
        stages: Sequence[str],
        *,
        most: int = MOST,
        abandoned: threading.Event | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        """Predict what the newest of the selected requests would take; `others` are options of `whatif`.

        The newest, not a sample: those who queue together must all be there. Raises QueryError or InputError.
        """
        traces, selected = self._newest_traces(selection, most, abandoned)
        return {"selected": selected, **whatif(traces, stages=stages, **others).to_dict()}

    def _newest_traces(
        self, selection: Selection, most: int, abandoned: threading.Event | None
    ) -> tuple[Traces, int]:
        """Return the newest of the selected requests, and how many there are in all."""
        selected = self._count(selection, abandoned)
        newest = self._newest(selection, most, abandoned) if selected > most else selection
        return self._questions.traces(newest, abandoned=abandoned), selected

    def _count(self, selection: Selection, abandoned: threading.Event | None) -> int:
        query = f"select count(*) as n from all_requests as requests where {selection.condition()}"  # noqa: S608  as in reports
        return int(self._queries.run(query, abandoned=abandoned).table.column("n")[0].as_py())

    def _newest(self, selection: Selection, most: int, abandoned: threading.Event | None) -> Selection:
        """Return the same selection from where its newest requests begin."""
        query = (
            "select min(start_time) as since from (select start_time from all_requests as requests "  # noqa: S608  as in reports
            f"where {selection.condition()} order by start_time desc limit {most})"
        )
        since: datetime = self._queries.run(query, abandoned=abandoned).table.column("since")[0].as_py()
        return replace(selection, since=since.replace(tzinfo=UTC))


def _first_start(traces: Traces) -> int | None:
    """Return when the first request that counts began: the zero of the curve's times."""
    first = traces.requests.filter("counted")["start_unix_nano"].min()
    return first if isinstance(first, int) else None


def _thinned(name: str, side: Sample) -> tuple[str, ...]:
    if side.is_all:
        return ()
    read = f"about {side.selected / side.stands_for:,.0f} were compared, from stretches spread over its time."
    return (f"Of the {side.selected:,} stored requests of the {name} {read}",)
