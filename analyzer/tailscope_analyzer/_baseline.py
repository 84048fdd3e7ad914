"""Spans kept in a Parquet file, to compare later requests with.

Owns the file: the columns of SPANS_SCHEMA, and in its metadata what is known of where they were recorded.
Judges nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet

from tailscope_analyzer._errors import InputError, SourceError
from tailscope_analyzer._schema import REQUIRED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SUFFIX: Final = ".parquet"
ABOUT: Final = b"tailscope.baseline"
pq: Any = pyarrow.parquet


@dataclass(frozen=True, slots=True)
class Baseline:
    """Hold spans and what is known of the machine that they were recorded on."""

    spans: pa.Table
    machine: Mapping[str, str] = field(default_factory=dict[str, str])
    """Empty in a file that somebody else wrote."""
    control_ms: tuple[float, ...] = ()
    """What runs of work that does not change took there; empty without a control."""


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file, whole or not at all."""
    about = {"version": 1, "machine": dict(baseline.machine), "control_ms": baseline.control_ms}
    table = baseline.spans.replace_schema_metadata({ABOUT: json.dumps(about).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the file, so that the replacement is one step; two test processes never share the name.
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        pq.write_table(table, part, compression="zstd")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_baseline(path: Path) -> Baseline:
    """Read a file of spans; raises SourceError where it cannot, InputError where it holds none."""
    try:
        table: pa.Table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path} cannot be read as Parquet: {error}.") from error
    missing = [name for name in REQUIRED_COLUMNS if name not in table.column_names]
    if missing:
        raise InputError(f"{path} holds no spans: it has no column {', '.join(missing)}.")
    return _described(table, table.schema.metadata)


def _described(table: pa.Table, metadata: Any) -> Baseline:
    """Add what the metadata tells; that of others tells nothing."""
    try:
        about: Any = json.loads(metadata[ABOUT])
        machine = {str(key): str(value) for key, value in about["machine"].items()}
        return Baseline(table, machine, tuple(float(ms) for ms in about["control_ms"]))
    except (KeyError, ValueError, TypeError, AttributeError):
        return Baseline(table)
