"""Retention: segments that are too old, or too much together, are deleted; traces of kept findings are not.

Owns the order: what is kept of them is copied first, then one transaction changes the list, then the files
go, which frees the disk at once. Age counts from the sealing, by a clock that starts with the process and
cannot be stepped; what the spans say of their time does not matter.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailscope_collector import _sql
from tailscope_collector._sealed._clock import SteadyClock
from tailscope_collector._sealed._parquet import FILES, Writer, sync
from tailscope_collector._transactions import roll_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import duckdb

    from tailscope_collector._settle import Settler
    from tailscope_collector._store import Store

DAY_S: Final = 86_400
BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Segment:
    """A listed segment, as far as retention looks at it."""

    number: int
    sealed_unix_s: int
    size_bytes: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a retention pass deleted."""

    segments: int
    size_bytes: int
    kept_traces: int


class Retention:
    """Deletes what is over the bounds; belongs to the thread that seals."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        *,
        days: float,
        size_bytes: int,
        now_unix_s: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._settler = settler
        self._days = days
        self._size_bytes = size_bytes
        self._now_unix_s = now_unix_s or SteadyClock()

    def apply(self) -> Dropped | None:
        """Delete what is over the bounds; returns None where nothing was.

        Raises duckdb.Error or OSError; the list is as before then.
        """
        with self._store.cursor() as cursor:
            listed = [Segment(*row) for row in cursor.execute(_sql.query("segments_by_age")).fetchall()]
            over = self._over(listed) + _let_go(cursor, listed)
            if not over:
                return None
            copied = self._drop(cursor, [segment.number for segment in over])
        return Dropped(len(over), sum(segment.size_bytes for segment in over), copied)

    def _over(self, listed: Sequence[Segment]) -> list[Segment]:
        """Return the segments that are over age, then the oldest of the rest until the others' size fits.

        What is not sealed does not count, nor what is kept: neither may delete the past.
        """
        plain = [segment for segment in listed if not segment.kept]
        oldest_s = self._now_unix_s() - self._days * DAY_S
        over = [segment for segment in plain if self._days and segment.sealed_unix_s < oldest_s]
        if self._size_bytes:
            size = sum(segment.size_bytes for segment in plain) - sum(segment.size_bytes for segment in over)
            for segment in plain[len(over) :]:
                if size <= self._size_bytes:
                    break
                over.append(segment)
                size -= segment.size_bytes
        return over

    def _drop(self, cursor: duckdb.DuckDBPyConnection, numbers: list[int]) -> int:
        """Unlist segments, with what is kept of them in a new one; returns how many traces that holds."""
        segments = self._store.segments
        copy = segments.next_number(cursor)
        folder = segments.path(copy)
        while True:
            traces = _kept_traces(cursor, numbers)
            try:
                counts = (
                    _copy(cursor, segments.files, numbers, traces, copy, folder) if traces.num_rows else None
                )
                if self._unlist(cursor, numbers, traces, copy, counts):
                    break
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        if counts is None or not counts["span_count"]:
            shutil.rmtree(folder, ignore_errors=True)
        segments.retire(numbers)
        return traces.num_rows

    def _unlist(
        self,
        cursor: duckdb.DuckDBPyConnection,
        numbers: list[int],
        traces: pa.Table,
        copy: int,
        counts: dict[str, int] | None,
    ) -> bool:
        """Do it in one transaction; returns whether: a report may have been kept since the copy was made."""
        gone = {"segments": numbers}
        with self._settler.standing_still():
            cursor.execute("begin")
            try:
                if not _kept_traces(cursor, numbers).equals(traces):
                    cursor.execute("rollback")
                    return False
                if counts and counts["span_count"]:
                    cursor.execute(
                        _sql.query("insert_segment"),
                        {"segment": copy, "sealed_unix_s": int(self._now_unix_s()), "kept": True, **counts},
                    )
                    cursor.execute(_sql.query("insert_kept_traces"), {"segment": copy, **gone})
                    _mark_replaced(cursor, traces)
                cursor.execute(_sql.query("delete_segments"), gone)
                cursor.execute(_sql.query("delete_sealed_traces"), gone)
                cursor.execute(_sql.query("delete_old_reopened"))
                cursor.execute("commit")
            except BaseException:
                roll_back(cursor)
                raise
        return True


def _let_go(cursor: duckdb.DuckDBPyConnection, listed: Sequence[Segment]) -> list[Segment]:
    """Return the segments of kept traces that no finding names any more."""
    needed = {int(number) for (number,) in cursor.execute(_sql.query("segments_of_kept")).fetchall()}
    return [segment for segment in listed if segment.kept and segment.number not in needed]


def _kept_traces(cursor: duckdb.DuckDBPyConnection, numbers: list[int]) -> pa.Table:
    query = _sql.query("kept_traces_of_segments")
    traces: pa.Table = cursor.sql(query, params={"segments": numbers}).to_arrow_table()
    return traces


def _mark_replaced(cursor: duckdb.DuckDBPyConnection, traces: pa.Table) -> None:
    """Let the copied rows not count of those traces that got late spans, perhaps while they were copied."""
    cursor.register("chosen_traces", traces)
    try:
        replaced = cursor.sql(_sql.query("resettled_traces"), params={"upto": -1}).to_arrow_table()
    finally:
        cursor.unregister("chosen_traces")
    cursor.register("reopened", replaced)
    try:
        cursor.execute(_sql.query("delete_reopened"))
        cursor.execute(_sql.query("insert_reopened"))
    finally:
        cursor.unregister("reopened")


def _copy(
    cursor: duckdb.DuckDBPyConnection,
    files: Callable[[str, Sequence[int]], list[str]],
    numbers: list[int],
    traces: pa.Table,
    copy: int,
    folder: Path,
) -> dict[str, int]:
    """Write a segment of some traces of other segments; rows that later ones replaced are left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    rows: dict[str, int] = {}
    cursor.register("chosen_traces", traces)
    try:
        for name, schema in FILES.items():
            with Writer(folder / f"{name}.parquet", schema) as writer:
                if name != "metrics":
                    cursor.execute("set variable chosen_files = $files", {"files": files(name, numbers)})
                    reader: Any = cursor.sql(_sql.query(f"kept_{name}")).to_arrow_reader(BATCH_ROWS)
                    for batch in reader:
                        writer.write(_numbered(pa.Table.from_batches([batch]), copy))
            rows[name] = writer.rows
    finally:
        cursor.unregister("chosen_traces")
    sync(folder)
    sync(folder.parent)
    span = cursor.execute(_sql.query("bounds_of_segments"), {"segments": numbers}).fetchall()[0]
    bounds = dict(zip(("first_unix_nano", "last_unix_nano", "first_seq", "last_seq"), span, strict=True))
    return {
        **bounds,
        "span_count": rows["spans"],
        "request_count": rows["requests"],
        "ledger_count": rows["ledger"],
        "metric_count": 0,
        "size_bytes": sum(path.stat().st_size for path in folder.iterdir()),
    }


def _numbered(table: pa.Table, number: int) -> pa.Table:
    if "segment" not in table.column_names:
        return table
    place = table.column_names.index("segment")
    return table.set_column(place, "segment", pa.array([number] * table.num_rows, pa.int64()))
