"""The public names are the ones that are written down, and importing them is cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tailscope_analyzer as ta


def test_the_public_names_are_these() -> None:
    assert ta.__all__ == [
        "LEDGER_SCHEMA",
        "REQUESTS_SCHEMA",
        "SPANS_SCHEMA",
        "AnalyzerError",
        "Client",
        "CodedLedger",
        "Comparison",
        "InputError",
        "LoadCurve",
        "NotFoundError",
        "QueryError",
        "Report",
        "Selection",
        "Servers",
        "Slo",
        "Source",
        "SourceError",
        "SqlResult",
        "Traces",
        "WhatIf",
        "compare",
        "connect",
        "headline",
        "known_servers",
        "ledger",
        "llm_requests",
        "load_curve",
        "load_servers",
        "open_source",
        "parse_percentile",
        "parse_time",
        "read_files",
        "render_trace",
        "report",
        "slo",
        "stage_of",
        "trace_detail",
        "trace_outline",
        "whatif",
    ]


def test_every_public_name_is_there() -> None:
    for name in ta.__all__:
        assert getattr(ta, name) is not None
    assert dir(ta) == sorted(ta.__all__)
    with pytest.raises(AttributeError, match="no attribute 'compare_all'"):
        _ = ta.compare_all


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import tailscope_analyzer", ["numpy", "polars", "pyarrow", "scipy", "rich"]),
        ("import tailscope_analyzer.commands.report", ["polars", "pyarrow", "scipy", "duckdb", "streamlit"]),
        (
            "import tailscope_analyzer as ta; [getattr(ta, n) for n in ta.__all__]",
            ["duckdb", "streamlit", "grpc"],
        ),
    ],
)
def test_importing_brings_no_more_than_it_needs(statement: str, absent: list[str]) -> None:
    code = f"{statement}\nimport sys\nprint([n for n in {absent} if n in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
