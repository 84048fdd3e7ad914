"""How a transaction of DuckDB ends when it cannot be committed.

Owns nothing but this one trap.
"""

from __future__ import annotations

import duckdb


def roll_back(cursor: duckdb.DuckDBPyConnection) -> None:
    """Roll back what the cursor began; nothing happens where that is over already."""
    try:
        cursor.execute("rollback")
    except duckdb.Error:
        # Some errors, and an interrupt, end the transaction by themselves.
        return
