"""The client speaks to a real HTTP server, and says what to do when there is none."""

from __future__ import annotations

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import grpc
import polars as pl
import pyarrow as pa
import pytest

from tailscope_analyzer import (
    Client,
    InputError,
    NotFoundError,
    QueryError,
    Selection,
    SourceError,
    SqlResult,
    Traces,
    connect,
    open_source,
    report,
    trace_detail,
)
from tailscope_analyzer.commands import report as report_command
from tailscope_analyzer.commands import sql as sql_command
from tailscope_analyzer.commands import trace as trace_command
from tailscope_analyzer.commands._tables import as_table, csv_parts, json_parts, write_parquet
from tests.analyzer.build import span, table
from tests.analyzer.populations import mixed, traces_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTHING_THERE = "http://127.0.0.1:9"  # the discard port: nobody listens


class Collector(BaseHTTPRequestHandler):
    """Answers as a collector does, from requests made up for the test."""

    made: Traces
    seen: list[tuple[str, Any, dict[str, str]]]
    token: str | None = None
    truncated = False

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self._note(parse_qs(url.query))
        if url.path == "/healthz":
            return self._send(200, b"{}")
        if url.path == "/api/report":
            return self._report(parse_qs(url.query))
        if url.path == "/api/traces/ab":
            return self._send(200, json.dumps(trace_detail(table(span("root", 0, 10)))).encode())
        return self._refuse(404, "not_found", f"There is no {url.path}.")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._note(asked)
        if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
            return self._refuse(401, "unauthorised", "no")
        query: str = asked["query"]
        if "broken" in query:
            return self._refuse(400, "bad_query", 'Parser Error: syntax error at or near "broken"')
        if "group by service" in query or "group by operation" in query:
            answer = asked_of(self.made, query)
        else:
            answer = with_ledger(self.made).to_arrow() if "from requests" in query else ODD
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, answer.schema) as writer:
            writer.write_table(answer)
        return self._send(
            200, sink.getvalue().to_pybytes(), {"X-Tailscope-Truncated": str(self.truncated).lower()}
        )

    def _report(self, asked: dict[str, list[str]]) -> None:
        if "broken" in asked.get("where", [""])[0]:
            refusal = 'Parser Error: syntax error\nat or near ")"\n\nLINE 1: select * from requests where'
            return self._refuse(400, "bad_query", refusal)
        is_chosen = pl.lit(asked.get("service", ["api"]) == ["api"]) & pl.lit("operation" not in asked)
        chosen = Traces.from_parts(self.made.requests.filter(is_chosen), self.made.ledger)
        return self._send(200, report(chosen).to_json().encode())

    def _note(self, asked: Any) -> None:
        self.seen.append((urlsplit(self.path).path, asked, dict(self.headers)))

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, json.dumps({"error": {"code": code, "message": message}}).encode())

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""


ODD = pa.table(
    {
        "n": pa.array([1, None], pa.int64()),
        "x": pa.array([1.5, float("nan")]),
        "when": pa.array([datetime(2026, 1, 2, 3, 4, 5), None], pa.timestamp("us")),  # noqa: DTZ001
        "tags": pa.array([[("k", "v")], []], pa.map_(pa.utf8(), pa.utf8())),
        "text": ['a,"b"', "ü"],
    }
)


def with_ledger(traces: Traces) -> pl.DataFrame:
    """Hang the rows of the view `stages` on their requests, as the query of the client asks for them."""
    keys = ("service", "stage", "category", "operation", "self_ms")
    rows = traces.ledger.group_by("trace_id", maintain_order=True).agg(ledger=pl.struct(*keys))
    return traces.requests.join(rows, on="trace_id", how="left", maintain_order="left")


def asked_of(traces: Traces, query: str) -> pa.Table:
    with duckdb.connect() as database:
        database.register("requests", traces.requests.to_arrow())
        return database.sql(query).to_arrow_table()


@contextmanager
def collector(**settings: Any) -> Iterator[tuple[str, type[Collector]]]:
    members = {"made": traces_of(mixed(400)), "seen": [], **settings}
    kind: type[Collector] = type("Its", (Collector,), members)
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", kind
        finally:
            server.shutdown()
            thread.join(10)


def test_traces_arrive_as_the_collector_holds_them() -> None:
    since = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    with collector() as (url, its), connect(url) as client:
        got = client.traces(service="o'hara", where="model = 'x' -- mine", since=since)

    assert got.requests.equals(its.made.requests)
    assert got.ledger.sort(pl.all()).equals(its.made.ledger.sort(pl.all()))
    assert len(its.seen) == 1
    assert (
        "(select * from requests where service = 'o''hara'"
        " and start_time >= timestamp '2026-01-01 10:00:00.000000' and (model = 'x' -- mine\n))"
    ) in its.seen[0][1]["query"]


def test_a_report_is_asked_for_in_the_words_of_the_command_line() -> None:
    with collector() as (url, its), connect(url + "/") as client:
        got = client.report(
            Selection(service="api", until=datetime(2026, 1, 1, tzinfo=UTC)), percentile=0.999
        )

    assert got == report(its.made)
    assert its.seen == [
        (
            "/api/report",
            {"service": ["api"], "until": ["2026-01-01T00:00:00.000000Z"], "percentile": ["99.9"]},
            its.seen[0][2],
        )
    ]


def test_rows_come_as_arrow_polars_or_tuples() -> None:
    with collector() as (url, _), connect(url) as client:
        result = client.sql("select 1", limit=5)

    assert result.arrow().drop_columns("x").equals(ODD.drop_columns("x"))  # NaN equals nothing
    assert result.pl()["text"].to_list() == ['a,"b"', "ü"]
    assert result.columns == ["n", "x", "when", "tags", "text"]
    assert [row[4] for row in result.rows] == ['a,"b"', "ü"]
    assert result.truncated is False


def test_traces_that_the_collector_cuts_off_are_refused() -> None:
    with collector(truncated=True) as (url, _), connect(url) as client:
        assert client.sql("select 1").truncated is True
        with pytest.raises(QueryError, match="at most 400 rows at once") as refused:
            client.traces()

    assert refused.value.code == "too_many_rows"


def test_an_error_of_the_database_keeps_its_words() -> None:
    with collector() as (url, _), connect(url) as client:
        with pytest.raises(QueryError, match='syntax error at or near "broken"') as refused:
            client.sql("select broken")
        with pytest.raises(NotFoundError, match="There is no /api/traces/cd"):
            client.trace("CD")
        assert client.trace(" AB ")["trace_id"] == "t1"

    assert (refused.value.code, refused.value.status) == ("bad_query", 400)


def test_a_token_is_sent_and_its_lack_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(token="s3cret") as (url, _):
        with connect(url) as client, pytest.raises(QueryError, match="set TAILSCOPE_TOKEN"):
            client.sql("select 1")
        with connect(url, token="s3cret") as client:
            assert client.sql("select 1").rows
        monkeypatch.setenv("TAILSCOPE_TOKEN", "s3cret")
        with connect(url) as client:
            assert client.sql("select 1").rows


def test_a_proxy_in_the_environment_does_not_stand_before_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", NOTHING_THERE)
    with collector() as (url, _), connect(url) as client:
        assert client.answers()


def test_no_collector_is_an_error_that_says_how_to_start_one() -> None:
    with connect(NOTHING_THERE) as client:
        assert not client.answers()
        with pytest.raises(
            SourceError, match=r"Cannot reach a collector at http://127\.0\.0\.1:9: .*tailscope serve"
        ):
            client.sql("select 1")


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://host", "http://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="Not a collector's URL"):
        connect(url)


def test_where_the_data_is_argument_then_environment_then_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILSCOPE_DATA", raising=False)
    monkeypatch.setenv("TAILSCOPE_URL", "http://from-environment:1")
    given, named = open_source(url="http://given:1"), open_source()
    assert isinstance(given, Client)
    assert isinstance(named, Client)
    assert (given.url, named.url) == ("http://given:1", "http://from-environment:1")

    with pytest.raises(InputError, match="Both a URL"):
        open_source(url="http://given:1", data="dir")

    monkeypatch.delenv("TAILSCOPE_URL")
    monkeypatch.setattr("tailscope_analyzer._source.DEFAULT_URL", NOTHING_THERE)
    with pytest.raises(SourceError, match=r"No collector answers at .* and there is no directory"):
        open_source()
    with collector() as (url, _):
        monkeypatch.setattr("tailscope_analyzer._source.DEFAULT_URL", url)
        default = open_source()
        assert isinstance(default, Client)
        assert default.url == url


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("text", "p99 is"),
        ("json", '{"version": 1'),
        ("markdown", "## Why p99 is slow"),
        ("html", "<!doctype html>"),
    ],
)
def test_the_report_command_prints_each_format(
    kind: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with collector() as (url, its):
        code = report_command.main(["--url", url, "--format", kind, "--since", "15m", "--percentile", "p99"])

    assert code == 0
    assert capsys.readouterr().out.startswith(start)
    assert set(its.seen[0][1]) == {"since", "percentile"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--since", "yesterday"], 2, "Not a time: 'yesterday'"),
        (["--percentile", "40"], 2, "Not a percentile with a tail: '40'"),
        (["--url", NOTHING_THERE], 1, "Cannot reach a collector"),
        (["--url", "nonsense"], 2, "Not a collector's URL"),
        (["--since", "5m", "--until", "1h"], 2, "The window ends before it begins: --since 5m is"),
    ],
)
def test_a_users_mistake_is_one_line_and_an_exit_code(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments if "--url" in arguments else [*arguments, "--url", NOTHING_THERE]

    assert report_command.main(given) == code

    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--service", "shp"], "No requests of service 'shp'. Services here: api.\n"),
        (["--operation", "GET /"], "No requests of operation 'GET /'. Operations: POST /predict.\n"),
        (
            ["--service", "api", "--operation", "GET /"],
            "No requests of api of operation 'GET /'. Operations of api: POST /predict.\n",
        ),
        (["--service", "api"], ""),
    ],
)
def test_a_name_that_no_request_has_is_told_with_those_that_there_are(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with collector() as (url, _):
        assert report_command.main(["--url", url, *arguments]) == 0

    shown = capsys.readouterr()
    assert shown.err == said
    assert shown.out.startswith("No requests match." if said else "p99 is")


def test_the_report_names_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    with collector() as (url, _):
        report_command.main(["--url", url])
        assert f"Source: {url}\n" in capsys.readouterr().out
        report_command.main(["--url", url, "--format", "json"])
        assert json.loads(capsys.readouterr().out)["notes"] == []


def test_a_wrong_condition_is_shown_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with collector() as (url, _):
        assert report_command.main(["--url", url, "--where", "broken > "]) == 1

    said = capsys.readouterr().err
    assert said == (
        "--where 'broken > ' is no condition over the columns of requests: "
        'Parser Error: syntax error at or near ")"\n'
    )


def test_a_grpc_port_is_told_from_a_collector(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            assert report_command.main(["--url", f"http://127.0.0.1:{port}"]) == 1
        finally:
            server.stop(None).wait(10)

    said = capsys.readouterr().err
    assert "does not speak HTTP; that may be the gRPC port, the HTTP port is 4318 by default" in said
    assert said.removesuffix("\n").isprintable()


def test_an_error_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with collector() as (url, _):
        trace_command.main(["\x1b[2J", "--url", url])
        sql_command.main(["select broken", "--url", url])

    assert "\x1b" not in capsys.readouterr().err


def test_the_trace_command_draws_or_dumps(capsys: pytest.CaptureFixture[str]) -> None:
    with collector() as (url, _):
        assert trace_command.main(["AB", "--url", url]) == 0
        assert capsys.readouterr().out.startswith("api  root  10.0 ms\ntrace t1, 1 spans")
        assert trace_command.main(["ab", "--url", url, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["trace_id"] == "t1"
        assert trace_command.main(["cd", "--url", url]) == 1
        assert "There is no /api/traces/cd" in capsys.readouterr().err
        assert trace_command.main([" ", "--url", url]) == 2


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "csv",
            'n,x,when,tags,text\n1,1.5,2026-01-02T03:04:05,"{""k"": ""v""}","a,""b"""\n,,,{},ü\n',
        ),
        (
            "jsonl",
            (
                '{"n": 1, "x": 1.5, "when": "2026-01-02T03:04:05", "tags": {"k": "v"}, "text": "a,\\"b\\""}\n'
                '{"n": null, "x": null, "when": null, "tags": {}, "text": "ü"}\n'
            ),
        ),
    ],
)
def test_the_sql_command_prints_text(kind: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with collector() as (url, its):
        assert sql_command.main(["select 1", "--url", url, "--format", kind, "--limit", "7"]) == 0

    assert capsys.readouterr().out == expected
    assert its.seen[0][1] == {"query": "select 1", "limit": 7}


def test_the_sql_command_prints_json_and_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with collector() as (url, _):
        assert sql_command.main(["select 1", "--url", url, "--format", "json"]) == 0
        assert [row["text"] for row in json.loads(capsys.readouterr().out)] == ['a,"b"', "ü"]
        assert sql_command.main(["select 1", "--url", url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["n", "x", "when", "tags", "text"]
    assert lines[-1] == "2 rows"


def test_the_sql_command_writes_arrow_and_parquet(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    import pyarrow.parquet as pq

    with collector() as (url, _):
        assert sql_command.main(["select 1", "--url", url, "--format", "arrow"]) == 0
        got = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
        assert got.drop_columns("x").equals(ODD.drop_columns("x"))
        assert sql_command.main(["select 1", "--url", url, "--format", "parquet"]) == 0
        assert pq.read_table(pa.BufferReader(capfdbinary.readouterr().out)).column_names == ODD.column_names


def test_the_sql_command_reads_stdin_and_says_when_rows_were_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with collector(truncated=True) as (url, its):
        monkeypatch.setattr("sys.stdin", io.StringIO("select 2"))
        assert sql_command.main(["-", "--url", url, "--format", "csv"]) == 0
        assert its.seen[0][1] == {"query": "select 2"}
        assert "Only the first 2 rows: the cap on rows cut the rest" in capsys.readouterr().err
        assert sql_command.main(["select 1", "--url", url, "--format", "csv", "--limit", "2"]) == 0
        assert capsys.readouterr().err == "Only the first 2 rows, as --limit says; there are more.\n"
        monkeypatch.setattr("sys.stdin", io.StringIO("  "))
        assert sql_command.main(["-", "--url", url]) == 2
        assert "The query is empty" in capsys.readouterr().err


ODD_COLUMNS = pa.table(
    [
        pa.array([1, 2]),
        pa.array(["x\x1b[31m", None]),
        pa.array([pa.MonthDayNano([0, 1, 0]), None], pa.month_day_nano_interval()),
        pa.array([2**31 - 1, 0], pa.date32()),
    ],
    names=["a", "a", "took", "day"],
)


def test_an_answer_may_repeat_a_name_and_hold_what_polars_and_python_cannot() -> None:
    answer = SqlResult(ODD_COLUMNS)

    frame = answer.pl()

    assert frame.columns == ["a", "a_1", "took", "day"]
    assert frame["a_1"].to_list() == ["x\x1b[31m", None]
    assert frame["took"].dtype == pl.String
    assert [row[0] for row in answer.rows] == [1, 2]
    assert answer.columns == ["a", "a", "took", "day"]


def test_an_answer_of_odd_columns_is_printed_in_every_format() -> None:
    answer = SqlResult(ODD_COLUMNS)

    first = json.loads("".join(json_parts(answer)))[0]
    out = io.BytesIO()
    write_parquet(answer, out)

    assert (first["a"], first["a_1"]) == (1, "x\x1b[31m")
    assert "".join(csv_parts(answer)).startswith("a,a,took,day\n1,x")
    assert out.getvalue().startswith(b"PAR1")
    assert "\x1b" not in as_table(answer, 80)


@pytest.mark.parametrize("count", ["-3", "0", "many"])
def test_a_number_of_spans_that_is_none_is_wrong_usage(
    count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        trace_command.main(["ab" * 16, f"--spans={count}"])

    assert stopped.value.code == 2
    assert f"'{count}' is no number of spans" in capsys.readouterr().err
