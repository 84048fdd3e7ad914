"""`tailscope sql` in a pipe: rows are written as they come, and a broken answer is never a whole file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope_analyzer import QueryError, SqlResult
from tailscope_analyzer.commands._tables import (
    as_table,
    csv_parts,
    json_parts,
    jsonl_parts,
    write_arrow,
    write_parquet,
)
from tailscope_collector import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = "select i, md5(i::varchar) as m from range(300000) t(i)"
FAILS_LATE = (
    "select case when i = 250000 then error('boom') else i end as x, md5(i::varchar) as m "
    "from range(300000) t(i)"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Collector(tmp_path_factory.mktemp("data")) as collector:
        yield collector.url


def command(url: str, kind: str, *query: str) -> list[str]:
    return [sys.executable, "-m", "tailscope", "sql", "--url", url, "--format", kind, *query]


def written(url: str, kind: str, query: str) -> subprocess.CompletedProcess[bytes]:
    asked = [*command(url, kind), "--limit", "1000000"]
    return subprocess.run(asked, input=query.encode(), capture_output=True, timeout=120, check=False)


def rows_of(kind: str, out: bytes) -> int:
    match kind:
        case "csv":
            return out.count(b"\n") - 1
        case "jsonl":
            return len([json.loads(line) for line in out.splitlines()])
        case "json":
            return len(json.loads(out))
        case "arrow":
            return pa.ipc.open_stream(out).read_all().num_rows
        case _:
            return pq.read_table(pa.BufferReader(out)).num_rows


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl", "arrow", "parquet"])
def test_many_rows_go_through(url: str, kind: str) -> None:
    done = written(url, kind, LONG)

    assert (done.returncode, done.stderr) == (0, b"")
    assert rows_of(kind, done.stdout) == 300_000


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl", "arrow", "parquet"])
def test_an_answer_that_breaks_off_is_an_error_and_no_file(url: str, kind: str) -> None:
    done = written(url, kind, FAILS_LATE)

    assert (done.returncode, done.stderr.decode().strip()) == (1, "Invalid Input Error: boom")
    if kind not in {"csv", "jsonl"}:
        with pytest.raises((ValueError, OSError)):
            rows_of(kind, done.stdout)


def test_the_first_rows_are_written_while_the_query_runs(url: str) -> None:
    asked = [*command(url, "csv", f"{LONG}, range(5)"), "--limit", "5000000"]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 20)
        process.stdout.close()  # as `head` does
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""

    assert first.startswith(b"i,m")


def test_the_name_of_a_column_is_shown_as_its_values_are() -> None:
    shown = as_table(SqlResult(pa.table({"a\x1b[31m": ["b\x1b[31m"]})), 80)

    assert "\x1b" not in shown
    assert shown.count("\ufffd[31m") == 2


def test_no_rows_are_something_in_every_format() -> None:
    def empty() -> SqlResult:
        return SqlResult(pa.table({"a": pa.array([], pa.int64())}))

    arrow, parquet = io.BytesIO(), io.BytesIO()
    write_arrow(empty(), arrow)
    write_parquet(empty(), parquet)

    assert "".join(csv_parts(empty())) == "a\n"
    assert "".join(json_parts(empty())) == "[]\n"
    assert "".join(jsonl_parts(empty())) == ""
    assert pa.ipc.open_stream(arrow.getvalue()).read_all().column_names == ["a"]
    assert pq.read_table(pa.BufferReader(parquet.getvalue())).column_names == ["a"]


def test_an_error_of_the_rows_is_raised_by_the_writer() -> None:
    class Broken:
        schema = pa.schema([("a", pa.int64())])
        truncated = False

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"a": list(range(1_000_000))})
            raise QueryError("boom")

        def close(self) -> None:
            """Nothing is held."""

    out = io.BytesIO()
    with pytest.raises(QueryError, match="boom"):
        write_arrow(SqlResult.begun(Broken()), out)
    with pytest.raises((pa.ArrowInvalid, OSError)):
        pa.ipc.open_stream(out.getvalue()).read_all()


def test_columns_that_the_terminal_has_no_room_for_get_a_line_each() -> None:
    names = [f"column_{number}" for number in range(36)]
    wide = pa.table({name: [f"value {name}", "z" * 120] for name in names})

    shown = as_table(SqlResult(wide), 80).splitlines()

    assert shown[0] == "── row 1 ──"
    assert [line.split(None, 1) for line in shown[1:37]] == [[name, f"value {name}"] for name in names]
    assert shown[37] == "── row 2 ──"
    assert "".join(shown[38:]).count("z") == 36 * 120
    assert all(len(line) <= 80 for line in shown)
    assert shown[-1] == "2 rows"
    assert as_table(SqlResult(wide.slice(0, 0)), 80) == "0 rows"
    assert "column_0" in as_table(SqlResult(wide), 10_000).splitlines()[0]
    assert as_table(SqlResult(wide.select(names[:5])), 80).splitlines()[0].split() == names[:5]
