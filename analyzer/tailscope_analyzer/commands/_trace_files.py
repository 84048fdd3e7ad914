"""Requests of files that a command was given.

Owns telling Parquet files of spans, which the gate of pytest writes, from traces in other formats.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._traces import Traces


def read_side(paths: Sequence[str]) -> Traces:
    """Read a Parquet file of spans, or files in formats of `tailscope import`; raises AnalyzerError."""
    tables = [path for path in paths if path.endswith(".parquet")]
    if not tables:
        from tailscope_analyzer._files import read_files

        return read_files(paths)
    if len(paths) > 1:
        raise InputError(f"A Parquet file of spans is read alone; {len(paths)} files were given.")
    from tailscope_analyzer._baseline import read_baseline
    from tailscope_analyzer._traces import Traces

    return Traces.from_spans(read_baseline(Path(paths[0])).spans)
