"""One batch of decoded spans to one DuckDB transaction.

Owns the order: duplicates out, origins and spans in, commit. Belongs to the thread that writes; nothing else
appends to `span_rows`. Never answers a sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tailscope_collector import _arrow, _sql
from tailscope_collector._acknowledged import Acknowledged
from tailscope_collector._arrow import bytes_of
from tailscope_collector._fingerprints import FingerprintCache, fingerprints, repeats_within
from tailscope_collector._origins import SCHEMA as ORIGINS_SCHEMA
from tailscope_collector._transactions import roll_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from tailscope_collector._arrow import Positions, Prints
    from tailscope_collector._span_table import SpanBatch
    from tailscope_collector._store import Store

PRIME_ROWS: Final = 2_000_000
"""About how many of the last stored spans a start reads back, so that a retry across a restart is seen
(about 0.5 s)."""

_IDENTITY: Final = ("trace_id", "span_id", "kind", "start_unix_nano")


class Committer:
    """Appends batches to a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursor = store.cursor()
        # Kept until a commit succeeds: spans of later batches name them too.
        self._origins = ORIGINS_SCHEMA.empty_table()
        self._cache = FingerprintCache()
        self._seq = store.last_batch_seq()
        self._acknowledged = Acknowledged(store.directory, self._seq)
        self._prime()

    @property
    def batch_seq(self) -> int:
        """The number of the last batch that was committed."""
        return self._seq

    def commit(self, batches: Sequence[SpanBatch]) -> int:
        """Store the batches durably and return how many of their spans were duplicates.

        Raises what DuckDB or Arrow raise, or StoreGoneError; nothing is stored then.
        """
        self._store.directory.check_in_place()
        self._origins = pa.concat_tables([self._origins, *(batch.origins for batch in batches)])
        filled = [batch for batch in batches if batch.table.num_rows]
        if not filled:
            return 0
        table = pa.concat_tables([batch.table for batch in filled])
        prints = np.concatenate([batch.prints for batch in filled])
        cursor = self._cursor
        with self._store.segments.holding():
            return self._append(cursor, table, prints)

    def _append(self, cursor: duckdb.DuckDBPyConnection, table: pa.Table, prints: Prints) -> int:
        cursor.execute("begin")
        try:
            duplicates = self._duplicates(table, prints)
            if len(duplicates):
                keep = np.ones(table.num_rows, dtype=np.bool_)
                keep[duplicates] = False
                table = _arrow.keep(table, keep)
            if self._origins.num_rows:
                self._insert("origin_batch", self._origins, "insert_origins")
            if table.num_rows:
                self._insert("span_batch", table, "insert_spans", batch_seq=self._seq + 1)
            cursor.execute("commit")
        except BaseException:
            roll_back(cursor)
            raise
        self._origins = ORIGINS_SCHEMA.empty_table()
        self._seq += 1
        if table.num_rows:
            self._acknowledged.note(self._seq)
        return len(duplicates)

    def close(self) -> None:
        """Let go of the cursor."""
        self._cursor.close()
        self._acknowledged.close()

    def _insert(self, name: str, table: pa.Table, query: str, **parameters: int) -> None:
        self._cursor.register(name, table)
        try:
            self._cursor.execute(_sql.query(query), parameters or None)
        finally:
            self._cursor.unregister(name)

    def _duplicates(self, table: pa.Table, prints: Prints) -> Positions:
        """Return the rows that are stored already or stand twice in the batch."""
        repeated = repeats_within(prints)
        suspects: Positions = np.setdiff1d(self._cache.suspects(prints), repeated)
        if not len(suspects):
            return repeated
        asked = _arrow.take(table.select(list(_IDENTITY)), suspects)
        asked = asked.append_column("row_number", _arrow.array(suspects))
        starts = asked.column("start_unix_nano").to_numpy()
        self._cursor.register("suspects", asked)
        try:
            places = self._cursor.execute(_sql.query("places_of_suspects")).fetchall()
            files = self._store.segments.files("spans", (int(segment) for (segment,) in places))
            self._cursor.execute("set variable chosen_spans = $files", {"files": files})
            rows = self._cursor.execute(
                _sql.query("stored_suspects"), {"earliest": int(starts.min()), "latest": int(starts.max())}
            ).fetchnumpy()["row_number"]
        finally:
            self._cursor.unregister("suspects")
        return np.union1d(repeated, np.asarray(rows, dtype=np.intp))

    def _prime(self) -> None:
        """Remember the spans that were stored last by an earlier process."""
        rows = 0
        for number in self._newest_segments():
            rows += self._remember(
                _sql.query("sealed_ids"), {}, files=self._store.segments.files("spans", [number])
            )
            if rows >= PRIME_ROWS:
                break
        self._remember(_sql.query("recent_ids"), {"rows": PRIME_ROWS})

    def _newest_segments(self) -> list[int]:
        listed = self._cursor.execute(_sql.query("listed_segments")).fetchall()
        return [int(number) for (number,) in reversed(listed)]

    def _remember(self, query: str, parameters: dict[str, int], *, files: Sequence[str] = ()) -> int:
        if files:
            self._cursor.execute("set variable chosen_spans = $files", {"files": list(files)})
        rows = 0
        reader = self._cursor.sql(query, params=parameters or None).to_arrow_reader(131_072)
        for batch in reader:
            rows += batch.num_rows
            if batch.num_rows:
                self._cache.remember(
                    fingerprints(
                        bytes_of(batch.column("trace_id")),
                        bytes_of(batch.column("span_id")),
                        batch.column("kind").to_numpy(),
                        batch.column("start_unix_nano").to_numpy(),
                    )
                )
        return rows
