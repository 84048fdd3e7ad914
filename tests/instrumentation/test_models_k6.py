"""The k6 example, run by node with k6's two modules replaced: its ids, its header, and OTLP that parses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "k6" / "traced.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node runs the k6 example here; k6 itself is not used")

SHIM = """
const sent = [];
const timings = { blocked: 0.5, connecting: 1.25, tls_handshaking: 0, waiting: 20, duration: 21 };
const http = {
  post(url, body, params) {
    sent.push({ url, body, headers: params.headers });
    return { status: STATUS, error_code: 0, timings };
  },
};
const exec = { scenario: { startTime: Date.now() - 1000, iterationInTest: 10 } };
const __ENV = { TARGET: 'http://127.0.0.1:1/predict', COLLECTOR: 'http://127.0.0.1:2' };
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[int], list[dict[str, Any]]]:
    """Run one iteration against a target that answers with a status; return what was sent."""

    def iteration(status: int) -> list[dict[str, Any]]:
        source = re.sub(r"^import .*$", "", SCRIPT.read_text(encoding="utf-8"), flags=re.MULTILINE)
        source = source.replace("export default function ()", "function iteration()")
        program = tmp_path / "traced.mjs"
        shim = SHIM.replace("STATUS", str(status))
        program.write_text(
            f"{shim}{source}\niteration();\nconsole.log(JSON.stringify(sent));\n", encoding="utf-8"
        )
        done = subprocess.run(
            [str(NODE), str(program)], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return iteration


def test_the_request_carries_the_trace_whose_span_is_exported(
    run: Callable[[int], list[dict[str, Any]]],
) -> None:
    request, export = run(200)
    message = json.loads(export["body"])
    span = message["resourceSpans"][0]["scopeSpans"][0]["spans"][0]

    assert export["url"] == "http://127.0.0.1:2/v1/traces"
    assert request["headers"]["traceparent"] == f"00-{span['traceId']}-{span['spanId']}-03"
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"])


def test_the_export_is_otlp(run: Callable[[int], list[dict[str, Any]]]) -> None:
    message = json.loads(run(503)[1]["body"])
    for one in message["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        # OTLP's JSON has ids in hex, where protobuf's own has base64.
        one["traceId"], one["spanId"] = "AAAAAAAAAAAAAAAAAAAAAA==", "AAAAAAAAAAA="
    parsed = json_format.ParseDict(message, ExportTraceServiceRequest())

    span = parsed.resource_spans[0].scope_spans[0].spans[0]
    attributes = {pair.key: pair.value for pair in span.attributes}
    assert (span.kind, span.status.code) == (3, 2)
    assert span.end_time_unix_nano - span.start_time_unix_nano == pytest.approx(22.75e6, abs=1e3)
    assert attributes["http.client.connect_ms"].double_value == 1.25
    assert attributes["error.type"].string_value == "503"
    # Iteration 10 at 20 a second was due half a second after the start, which is a second ago.
    assert 450 <= attributes["loadgen.late_ms"].double_value + attributes["loadgen.late_ms"].int_value <= 2000
