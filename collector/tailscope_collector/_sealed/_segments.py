"""Which sealed segments there are, and who reads them.

Owns `segments/`, the listing in `segment_rows`, and the rule that a file is deleted only when nobody who may
still open it is reading. A reader sees the active tables and the list of segments of one snapshot, so it
sees each span once, whatever is sealed or dropped meanwhile. Writes no segment.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tailscope_collector import _sql
from tailscope_collector._sealed._parquet import FILES, write_empty
from tailscope_collector._transactions import roll_back

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence
    from pathlib import Path

    import duckdb

log = logging.getLogger(__name__)

EMPTY: Final = "empty"
"""The folder of files without rows: a list of files must name one, and the first gives the columns."""

_OURS: Final = re.compile(r"\d{8}")
_FAR: Final = 1_000_000
"""So far above the next number, a folder is named by somebody else: after a day, for instance."""


class Segments:
    """The segments of a store; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._turn = 0
        self._reading: dict[int, int] = {}
        self._retired: list[tuple[int, Path]] = []
        self._highest = 0
        self._damaged: frozenset[str] = frozenset()
        self._missing: set[str] = set()

    def prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make what views need to exist; they show nothing sealed yet."""
        write_empty(self.folder / EMPTY)
        self._point(cursor, ())

    def clean(self, cursor: duckdb.DuckDBPyConnection, *, list_is_whole: bool) -> None:
        """Delete what a killed process left behind, and look for damage; call it before anybody reads.

        Where the list may be an older one, what it does not name is set aside instead.
        """
        listed = {self.path(number) for number in _listed(cursor)}
        far = self.next_number(cursor) + _FAR
        for path in sorted(self.folder.iterdir()):
            if _OURS.fullmatch(path.name) and path not in listed and int(path.name) < far:
                if list_is_whole:
                    _delete(path)
                else:
                    _set_aside(path)
        sizes = cursor.execute("select segment, size_bytes from segment_rows order by segment").fetchall()
        self._damaged = frozenset(
            str(path.resolve()) for number, size in sizes for path in _damaged(self.path(number), int(size))
        )

    def next_number(self, cursor: duckdb.DuckDBPyConnection) -> int:
        """Return the number of the next segment: none has it, had it, or is still being read under it."""
        stored = int(cursor.execute(_sql.query("next_segment")).fetchall()[0][0])
        with self._guard:
            return max(stored, self._highest + 1)

    def lost_count(self) -> int:
        """Return how many files of listed segments could not be read when they were last asked for."""
        with self._guard:
            return len(self._damaged) + len(self._missing)

    def path(self, number: int) -> Path:
        """Return the folder of a segment."""
        return self.folder / f"{number:08d}"

    def files(self, name: str, numbers: Iterable[int]) -> list[str]:
        """Return the paths of one file of some segments, before that of the empty one.

        What is missing or damaged is left out and said in the log: the rest can be read all the same. DuckDB
        takes all files to have as many rows as the first: after the empty one it would expect none, and join
        the wrong way round (10 s where it takes 1).
        """
        # Text, not paths: there are four files of hundreds of segments to look at before each query.
        folder = str(self.folder.resolve())
        paths = [f"{folder}/{number:08d}/{name}.parquet" for number in numbers]
        return [*(path for path in paths if self._is_there(path)), f"{folder}/{EMPTY}/{name}.parquet"]

    def _is_there(self, path: str) -> bool:
        if path in self._damaged:
            return False
        there = os.path.exists(path)  # noqa: PTH110 - see files
        if there and not self._missing:
            return True
        with self._guard:
            if there == (path not in self._missing):
                return there
            if there:
                self._missing.remove(path)
            else:
                self._missing.add(path)
        if there:
            log.info("%s is back and is read again", path)
        else:
            log.error("%s is missing: answers lack what is in it until it is put back", path)
        return there

    def words_of_folder(self) -> list[str]:
        """Return the data directory's path, in pieces where it has blanks: DuckDB breaks lines there."""
        return [word for word in f"{self.folder.parent.resolve()}/".split(" ") if "/" in word]

    def without_folder(self, text: str) -> str:
        """Return DuckDB's words without the place of the data directory, which is no reader's business."""
        return text.replace(f"{self.folder.parent.resolve()}/", "")

    def bind(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Tell the views on a cursor which files belong to what its transaction sees."""
        self._point(cursor, _listed(cursor))

    def of_traces(self, cursor: duckdb.DuckDBPyConnection, trace_ids: Sequence[str]) -> list[int]:
        """Return the segments that have spans of some traces, as the cursor's transaction sees them."""
        found = cursor.execute(_sql.query("places_of_traces"), {"trace_ids": list(trace_ids)}).fetchall()
        return [int(segment) for (segment,) in found]

    def narrow(self, cursor: duckdb.DuckDBPyConnection, trace_ids: Sequence[str]) -> None:
        """Let the views on a cursor, which is reading, look into no segment that has none of the traces."""
        files = self.files("spans", self.of_traces(cursor, trace_ids))
        cursor.execute("set variable sealed_spans = $files", {"files": files})

    @contextmanager
    def reading(self, cursor: duckdb.DuckDBPyConnection) -> Generator[None]:
        """Give the cursor one snapshot to read, active and sealed, until the end of the block."""
        with self.holding():
            cursor.execute("begin transaction read only")
            try:
                self.bind(cursor)
                yield
            finally:
                roll_back(cursor)

    @contextmanager
    def holding(self) -> Generator[None]:
        """Keep all files that are listed now until the end of the block."""
        with self._guard:
            self._turn += 1
            mine = self._turn
            self._reading[mine] = mine
        try:
            yield
        finally:
            with self._guard:
                del self._reading[mine]
            self._sweep()

    def retire(self, numbers: Iterable[int]) -> None:
        """Delete segments that are not listed any more, as soon as nobody reads them."""
        gone = list(numbers)
        with self._guard:
            self._retired += [(self._turn, self.path(number)) for number in gone]
            self._highest = max([self._highest, *gone])
            folders = tuple(f"{self.path(number).resolve()}/" for number in gone)
            self._missing = {path for path in self._missing if not path.startswith(folders)}
            self._damaged = frozenset(path for path in self._damaged if not path.startswith(folders))
        self._sweep()

    def _point(self, cursor: duckdb.DuckDBPyConnection, numbers: Collection[int]) -> None:
        for name in FILES:
            cursor.execute(f"set variable sealed_{name} = $files", {"files": self.files(name, numbers)})

    def _sweep(self) -> None:
        with self._guard:
            oldest = min(self._reading, default=self._turn + 1)
            free = [path for turn, path in self._retired if turn < oldest]
            self._retired = [(turn, path) for turn, path in self._retired if turn >= oldest]
        for path in free:
            _delete(path)


def _listed(cursor: duckdb.DuckDBPyConnection) -> list[int]:
    return [int(number) for (number,) in cursor.execute(_sql.query("listed_segments")).fetchall()]


def _delete(path: Path) -> None:
    """Delete a folder of a segment; what somebody else put there stays, and the folder with it."""
    try:
        for name in FILES:
            (path / f"{name}.parquet").unlink(missing_ok=True)
        path.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("a file that is not needed any more stays: %s", error)


def _set_aside(path: Path) -> None:
    place = path.with_name(f"{path.name}.unlisted")
    while place.exists():
        place = place.with_name(f"{place.name}.unlisted")
    path.rename(place)
    log.error(
        "the database does not list the segment %s and may be older: it lies in %s now and is not read",
        path,
        place,
    )


def _damaged(folder: Path, size_bytes: int) -> list[Path]:
    """Return the files of a listed segment that are there but cannot be read: they were cut or replaced."""
    paths = [path for name in FILES if (path := folder / f"{name}.parquet").exists()]
    if sum(path.stat().st_size for path in paths) == size_bytes:
        return []
    parquet: Any = pq
    damaged: list[Path] = []
    for path in paths:
        try:
            parquet.read_metadata(path)
        except (pa.ArrowException, OSError) as error:
            log.error("%s is damaged, answers lack what is in it: %s", path, error)
            damaged.append(path)
    return damaged
