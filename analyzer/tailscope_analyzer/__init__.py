"""Why slow requests are slow: tables in, findings out.

The public face of the analyzer. Names are imported when they are first used, so that a command pays only for
what it needs; a test pins the list.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailscope_analyzer._answer import SqlResult
    from tailscope_analyzer._arguments import parse_percentile, parse_time
    from tailscope_analyzer._client import Client, connect
    from tailscope_analyzer._coded import CodedLedger
    from tailscope_analyzer._compare import Comparison, compare
    from tailscope_analyzer._detail import trace_detail
    from tailscope_analyzer._errors import AnalyzerError, InputError, NotFoundError, QueryError, SourceError
    from tailscope_analyzer._files import read_files
    from tailscope_analyzer._headline import headline
    from tailscope_analyzer._load import LoadCurve, load_curve
    from tailscope_analyzer._outline import trace_outline
    from tailscope_analyzer._report import Report
    from tailscope_analyzer._schema import LEDGER_SCHEMA, REQUESTS_SCHEMA, SPANS_SCHEMA
    from tailscope_analyzer._servers import Servers, known_servers, load_servers, stage_of
    from tailscope_analyzer._slo import Slo, slo
    from tailscope_analyzer._source import Selection, Source, open_source
    from tailscope_analyzer._tail import report
    from tailscope_analyzer._tokens import llm_requests
    from tailscope_analyzer._traces import Traces, ledger
    from tailscope_analyzer._waterfall import render_trace
    from tailscope_analyzer._whatif import WhatIf, whatif

__all__ = [
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

_HOME = {
    "_answer": ("SqlResult",),
    "_arguments": ("parse_percentile", "parse_time"),
    "_client": ("Client", "connect"),
    "_coded": ("CodedLedger",),
    "_compare": ("Comparison", "compare"),
    "_detail": ("trace_detail",),
    "_errors": ("AnalyzerError", "InputError", "NotFoundError", "QueryError", "SourceError"),
    "_files": ("read_files",),
    "_headline": ("headline",),
    "_load": ("LoadCurve", "load_curve"),
    "_outline": ("trace_outline",),
    "_report": ("Report",),
    "_schema": ("LEDGER_SCHEMA", "REQUESTS_SCHEMA", "SPANS_SCHEMA"),
    "_servers": ("Servers", "known_servers", "load_servers", "stage_of"),
    "_slo": ("Slo", "slo"),
    "_source": ("Selection", "Source", "open_source"),
    "_tail": ("report",),
    "_tokens": ("llm_requests",),
    "_traces": ("Traces", "ledger"),
    "_waterfall": ("render_trace",),
    "_whatif": ("WhatIf", "whatif"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
