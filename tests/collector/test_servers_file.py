"""`tailscope serve --servers FILE`: a user's table reaches stages, the ledger and the trace page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope_analyzer import load_servers
from tailscope_collector import Collector
from tailscope_collector.commands import serve
from tests.collector.building import MS, SpanSpec, body
from tests.collector.serving import ask_rows, call, post_protobuf

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ROWS = """
[[span]]
operation = "admit"
stage = "queue.gate"

[[layout]]
part = [{ name = "embed", stage = "inference", key = "x.embed_ms", unit = "ms" }]
"""


def test_a_users_table_reaches_the_spans_the_ledger_and_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(ROWS)
    with Collector(tmp_path / "data", servers=load_servers(file)) as collector:
        post_protobuf(
            collector.url,
            body(
                SpanSpec(1, 1, kind=2, name="root", duration_ns=10 * MS, attributes={"x.embed_ms": 6.0}),
                SpanSpec(1, 2, 1, name="admit", duration_ns=0),
            ),
        )

        assert ask_rows(collector.url, "select stage from spans where operation = 'admit'") == [
            ["queue.gate"]
        ]
        assert ask_rows(collector.url, "select operation, self_ms from stages order by 1") == [
            ["embed", 6.0],
            ["root", 4.0],
        ]
        trace = ask_rows(collector.url, "select trace_id from requests")[0][0]
        path = call(f"{collector.url}/api/traces/{trace}").json["critical_path"]
        assert [piece["stage"] for piece in path] == ["inference", "other"]


def test_a_table_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data", str(tmp_path / "data"), "--servers", str(tmp_path / "none.toml")]

    assert serve.main([*flags, "--grpc-port", "0", "--http-port", "0"]) == 1
    assert "none.toml cannot be read: No such file" in capsys.readouterr().err
