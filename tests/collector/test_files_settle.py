"""Every real trace file at hand, imported and settled: each request is in the ledger to the nanosecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tailscope_analyzer import Selection
from tailscope_collector import open_data
from tailscope_collector.commands import import_files
from tests.shared import shared_file

if TYPE_CHECKING:
    from pathlib import Path

TABLES = (".csv", ".md", ".tsv")
SLOW = "chrome_hta_ns_resolution"
"""A profile of 14 MB, whose import has a test of its own."""


def test_every_request_of_every_file_sums_to_its_duration(tmp_path: Path) -> None:
    folder = shared_file("traces/index.tsv").parent
    files = (file for file in (*folder.iterdir(), *(folder / "crisp").iterdir()) if file.is_file())
    traces = sorted(
        str(file)
        for file in files
        if file.suffix not in TABLES and file.name != "LICENSE" and not file.name.startswith(SLOW)
    )

    import_files.main([*traces, "--data", str(tmp_path / "data")])
    source = open_data(tmp_path / "data")
    try:
        found = source.traces(Selection())
    finally:
        source.close()

    sums = found.ledger.group_by("trace_id").agg(pl.col("self_ns").sum())
    rows = found.requests.join(sums, on="trace_id", how="left").with_columns(pl.col("self_ns").fill_null(0))
    assert len(rows) > 40
    assert rows["duration_ns"].null_count() == 2, "two have times that cannot be true"
    assert (
        rows.filter(pl.col("duration_ns") != pl.col("self_ns")).select("trace_id", "operation").rows() == []
    )
    assert (found.ledger["self_ns"] > 0).all()
