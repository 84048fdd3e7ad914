"""The answer to a SQL query, whole or while it still comes.

Owns `SqlResult` and its promise: a short answer is here when the query returns; of a long one the rest is
fetched when it is asked for, so that whoever reads batch by batch never holds it all. Knows neither HTTP nor
a store: both hand their rows over as `Coming`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    import pandas as pd  # type: ignore[import-untyped,unused-ignore]
    import polars as pl
    import pyarrow as pa

AT_ONCE_BYTES: Final = 4 << 20
"""Bytes of rows that are fetched before the query returns."""


GONE: Final = (
    "Rows were read with batches(), or the answer was closed: not all are here. Ask again, and use arrow()."
)


class Coming(Protocol):
    """Rows on their way, read once."""

    schema: pa.Schema
    truncated: bool
    """Whether the row cap cut them; known when the iteration has ended."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises QueryError where they end too early."""
        ...

    def close(self) -> None:
        """Let go of them, read or not; safe to call twice."""
        ...


class SqlResult:
    """Hold the answer to a query; a context manager that lets go of what was not fetched.

    `truncated` and everything but `batches()` fetch the rest first, and then hold it.
    """

    def __init__(self, table: pa.Table, *, truncated: bool = False, rest: Coming | None = None) -> None:
        """Hold the first rows, and where more come from."""
        self._table = table
        self._truncated = truncated
        self._rest = rest
        self._coming = iter(rest) if rest is not None else None
        self._is_spent = False
        self.count = table.num_rows
        """Rows that have come."""

    @classmethod
    def begun(cls, rows: Coming) -> Self:
        """Fetch the first rows; raises QueryError where they cannot be had."""
        import pyarrow as pa

        batches: list[pa.RecordBatch] = []
        size = 0
        try:
            result = cls(rows.schema.empty_table(), rest=rows)
            for batch in result._left():
                batches.append(batch)
                size += batch.nbytes
                if size >= AT_ONCE_BYTES:
                    break
        except BaseException:
            rows.close()
            raise
        result._table = pa.Table.from_batches(batches, schema=rows.schema)
        return result

    @property
    def table(self) -> pa.Table:
        """The rows as an Arrow table; raises QueryError where the rest cannot be had."""
        import pyarrow as pa

        if self._is_spent:
            raise InputError(GONE)
        if self._coming is not None:
            batches = [*self._table.to_batches(), *self._left()]
            self._table = pa.Table.from_batches(batches, schema=self._table.schema)
        return self._table

    @property
    def truncated(self) -> bool:
        """Whether the row cap cut the answer."""
        if not self._is_spent:
            _ = self.table
        return self._truncated

    @property
    def schema(self) -> pa.Schema:
        """Names and Arrow types of the columns."""
        return self._table.schema

    @property
    def columns(self) -> list[str]:
        """Name the columns in order."""
        return list(self._table.column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as tuples of Python values."""
        from tailscope_analyzer._arrow import values_of

        columns = [values_of(column) for column in self.table.columns]
        return list(zip(*columns, strict=True))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows batch by batch and hold none that had to be fetched: those can be read once.

        Raises QueryError where the rest cannot be had. `truncated` is right afterwards.
        """
        if self._is_spent:
            raise InputError(GONE)
        self._is_spent = self._coming is not None
        yield from self._table.to_batches()
        yield from self._left()

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.table

    def pl(self) -> pl.DataFrame:
        """Return the rows as a Polars frame; of two columns of one name the second becomes `name_1`."""
        from tailscope_analyzer._arrow import frame_of, plain_table

        return frame_of(plain_table(self.table))

    def df(self) -> pd.DataFrame:
        """Return the rows as a pandas frame; raises InputError where pandas is not installed."""
        from tailscope_analyzer._arrow import plain_table

        try:
            table: Any = plain_table(self.table)  # the stubs leave the frame untyped
            return cast("pd.DataFrame", table.to_pandas())
        except ModuleNotFoundError as error:
            raise InputError("df() needs pandas. Install it with: pip install pandas") from error

    def close(self) -> None:
        """Let go of what was not fetched; safe to call twice."""
        if self._rest is not None and self._coming is not None:
            self._coming, self._is_spent = None, True
            self._rest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _left(self) -> Iterator[pa.RecordBatch]:
        if self._coming is None or self._rest is None:
            return
        for batch in self._coming:  # a reader who stops must not end what is still to come
            self.count += batch.num_rows
            yield batch
        self._coming = None
        self._truncated = self._rest.truncated
        self._rest.close()
