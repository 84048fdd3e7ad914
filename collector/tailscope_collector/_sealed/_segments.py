"""Which sealed segments there are, and who reads them.

Owns `segments/`, the listing in `segment_rows`, and the rule that a file is deleted only when nobody who may
still open it is reading. A reader sees the active tables and the list of segments of one snapshot, so it
sees each span once, whatever is sealed or dropped meanwhile. Writes no segment.
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tailscope_collector import _sql
from tailscope_collector._sealed._parquet import FILES, write_empty
from tailscope_collector._transactions import roll_back

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable
    from pathlib import Path

    import duckdb

log = logging.getLogger(__name__)

EMPTY: Final = "empty"
"""The folder of files without rows: a list of files must name one, and the first gives the columns."""

_OURS: Final = re.compile(r"\d{8}")


class Segments:
    """The segments of a store; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.Lock()
        self._turn = 0
        self._reading: dict[int, int] = {}
        self._retired: list[tuple[int, Path]] = []

    def prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make what views need to exist; they show nothing sealed yet."""
        write_empty(self.folder / EMPTY)
        self._point(cursor, ())

    def clean(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Delete what a killed process left behind; call it before anybody reads."""
        listed = {self.path(number) for number in _listed(cursor)}
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name) and path not in listed:
                _delete(path)

    def path(self, number: int) -> Path:
        """Return the folder of a segment."""
        return self.folder / f"{number:08d}"

    def files(self, name: str, numbers: Iterable[int]) -> list[str]:
        """Return the paths of one file of some segments, after that of the empty one."""
        folders = [self.folder / EMPTY, *(self.path(number) for number in numbers)]
        return [str((folder / f"{name}.parquet").resolve()) for folder in folders]

    def bind(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Tell the views on a cursor which files belong to what its transaction sees."""
        self._point(cursor, _listed(cursor))

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
        with self._guard:
            self._retired += [(self._turn, self.path(number)) for number in numbers]
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
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        log.warning("a file that is not needed any more stays: %s", error)
