"""Reports that somebody kept, and the traces that they name, which outlive retention.

Owns `finding_rows` and `kept_rows`. What a report says is stored as it was told then: its traces can be
opened for as long as it is kept, though the rest of its window is gone.
"""

from __future__ import annotations

import json
import threading
import uuid
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailscope_analyzer import NotFoundError, QueryError
from tailscope_collector import _sql
from tailscope_collector._transactions import roll_back

if TYPE_CHECKING:
    import duckdb

    from tailscope_analyzer import Report, Selection
    from tailscope_collector._query._questions import Questions
    from tailscope_collector._store import Store

NAME_CHARACTERS: Final = 200
MOST_FINDINGS: Final = 10_000
"""More than people keep; less than a script that keeps one a minute would fill a disk with."""


class Findings:
    """The kept reports of a store; thread-safe."""

    def __init__(self, store: Store, questions: Questions) -> None:
        self._store = store
        self._questions = questions
        self._guard = threading.Lock()

    def keep(
        self,
        selection: Selection,
        *,
        percentile: float,
        name: str,
        abandoned: threading.Event | None = None,
    ) -> tuple[str, Report]:
        """Explain the tail of the selected requests, keep that and its traces; returns its id and the report.

        Raises QueryError or InputError, also where there is nothing to keep.
        """
        name = name.strip()
        if not name or len(name) > NAME_CHARACTERS:
            raise QueryError(f"The name has {len(name)} characters; give it 1 to {NAME_CHARACTERS}.")
        report = self._questions.report(selection, percentile=percentile, abandoned=abandoned)
        if not report.requests:
            raise QueryError("No request matches, so there is nothing to keep.", code="nothing_to_keep")
        text = report.to_json()
        finding = uuid.uuid4().hex[:12]
        traces = pa.table({"trace_id": pa.array(_traces(json.loads(text)), pa.string())})
        with self._guard, self._store.cursor() as cursor:
            if _count(cursor) >= MOST_FINDINGS:
                raise QueryError(f"{MOST_FINDINGS} reports are kept already; delete some first.")
            cursor.register("exemplars", traces)
            cursor.execute("begin")
            try:
                cursor.execute(
                    _sql.query("insert_finding"), {"finding_id": finding, "name": name, "report": text}
                )
                cursor.execute(_sql.query("insert_kept"), {"finding_id": finding})
                cursor.execute("commit")
            except BaseException:
                roll_back(cursor)
                raise
            finally:
                cursor.unregister("exemplars")
        return finding, report

    def report(self, finding_id: str) -> str:
        """Return the JSON of a kept report; raises NotFoundError."""
        with self._store.cursor() as cursor:
            rows = cursor.execute(_sql.query("report_of_finding"), {"finding_id": finding_id}).fetchall()
        if not rows:
            raise _unknown(finding_id)
        return str(rows[0][0])

    def listed(self) -> list[dict[str, Any]]:
        """Return id, name, time and number of traces of each kept report, the newest first."""
        with self._store.cursor() as cursor:
            rows = cursor.execute(_sql.query("list_findings")).fetchall()
        names = ("finding_id", "name", "created", "traces")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def forget(self, finding_id: str) -> None:
        """Let go of a kept report and its traces; raises NotFoundError."""
        with self._guard, self._store.cursor() as cursor:
            cursor.execute("begin")
            try:
                gone = cursor.execute(_sql.query("delete_finding"), {"finding_id": finding_id}).fetchall()
                cursor.execute(_sql.query("delete_kept"), {"finding_id": finding_id})
                cursor.execute("commit")
            except BaseException:
                roll_back(cursor)
                raise
        if not gone[0][0]:
            raise _unknown(finding_id)


def _traces(report: dict[str, Any]) -> list[str]:
    """Return the traces that a report names as proof."""
    named = [slow["trace_id"] for slow in report["slowest"]]
    named += [trace for cause in report["causes"] for trace in cause["traces"]]
    return list(dict.fromkeys(named))


def _count(cursor: duckdb.DuckDBPyConnection) -> int:
    return int(cursor.execute("select count(*) from finding_rows").fetchall()[0][0])


def _unknown(finding_id: str) -> NotFoundError:
    return NotFoundError(f"No report is kept under {finding_id!r}; the view findings lists those that are.")
