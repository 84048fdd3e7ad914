"""Answers to SQL that go out while their query runs."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import InputError, QueryError, SourceError, connect
from tailscope_analyzer._answer import AT_ONCE_BYTES
from tailscope_collector import Collector, Settings, open_data
from tailscope_collector._query._channel import AHEAD_BYTES
from tailscope_collector._query._watch import private_bytes
from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ask_rows, post_json, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
MANY = 1_000_000
LONG = f"select i, md5(i::varchar) as m from range({MANY}) t(i)"  # noqa: S608 - a number of this module
FAILS_LATE = (
    "select case when i = 900000 then error('boom') else i end as x, md5(i::varchar) as m "
    "from range(1000000) t(i)"
)
SLOW_AT_THE_END = (
    "select i, md5(i::varchar) as m from range(300000) t(i) "
    "union all select count(*), '' from range(1000000000000)"
)


@contextmanager
def asked(url: str, query: str, accept: str, limit: int | None = MANY) -> Iterator[http.client.HTTPResponse]:
    """Ask, and read nothing but the head of the answer."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=DEADLINE_S)
    body = json.dumps({"query": query, "limit": limit})
    connection.request("POST", "/api/sql", body, {"Accept": accept, "Content-Type": JSON})
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def turns_taken() -> int:
    return sum(thread.name == "tailscope-watch" for thread in threading.enumerate())


@pytest.fixture
def idle(collector: Collector) -> Collector:
    assert turns_taken() == 0
    return collector


@pytest.mark.parametrize("accept", [JSON, ARROW])
def test_the_first_rows_are_there_while_the_query_still_runs(idle: Collector, accept: str) -> None:
    endless = "select i, md5(i::varchar) as m from range(1000000000000) t(i)"
    with asked(idle.url, endless, accept, limit=None) as answer:
        assert answer.status == 200  # the default cap of rows ends it
    until(lambda: turns_taken() == 0)

    with asked(idle.url, LONG, accept) as answer:
        first = answer.read(200)

        assert len(first) == 200
        assert turns_taken() == 1, "the query had ended before its first rows were read"


@pytest.mark.parametrize("accept", [JSON, ARROW])
def test_a_client_that_goes_away_ends_its_query(idle: Collector, accept: str) -> None:
    with asked(idle.url, LONG, accept) as answer:
        answer.read(200)
        until(lambda: turns_taken() == 1)

    until(lambda: turns_taken() == 0)
    assert ask_rows(idle.url, "select 1") == [[1]]


def test_a_query_without_rows_yet_ends_with_its_client_too(idle: Collector) -> None:
    address = urlsplit(idle.url)
    body = json.dumps({"query": "select count(*) from range(1000000000000)"}).encode()
    with socket.create_connection((str(address.hostname), address.port or 0), DEADLINE_S) as peer:
        peer.sendall(
            b"POST /api/sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        until(lambda: turns_taken() == 1)

    until(lambda: turns_taken() == 0)


def test_json_that_breaks_off_tells_why_and_is_no_json(collector: Collector) -> None:
    with asked(collector.url, FAILS_LATE, JSON) as answer:
        assert answer.status == 200
        with pytest.raises(http.client.IncompleteRead) as cut:
            answer.read()

    assert cut.value.partial.endswith(b'],"error":{"code":"bad_query","message":"Invalid Input Error: boom"}')
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(cut.value.partial)


def test_arrow_that_breaks_off_is_read_by_nobody(collector: Collector) -> None:
    with asked(collector.url, FAILS_LATE, ARROW) as answer, pytest.raises(http.client.IncompleteRead) as cut:
        answer.read()

    with pytest.raises((pa.ArrowInvalid, OSError)):
        pa.ipc.open_stream(cut.value.partial).read_all()
    with pytest.raises(QueryError, match="boom") as told:
        _ = connect(collector.url).sql(FAILS_LATE, limit=MANY).table
    assert told.value.code == "bad_query"


@pytest.mark.parametrize("accept", [JSON, ARROW])
def test_an_error_before_the_first_rows_has_its_status(collector: Collector, accept: str) -> None:
    answer = post_json(f"{collector.url}/api/sql", {"query": "select error('boom')"}, Accept=accept)

    assert (answer.status, answer.json["error"]["code"]) == (400, "bad_query")


def test_what_does_not_end_in_time_is_broken_off(tmp_path: Path) -> None:
    with Collector(tmp_path / "data", settings=Settings(query_timeout_s=1)) as collector:
        with pytest.raises(QueryError, match="took longer than 1 s") as told:
            for _ in connect(collector.url).sql(SLOW_AT_THE_END, limit=MANY).batches():
                pass

        assert told.value.code == "timeout"


def test_the_time_of_a_slow_reader_is_not_the_querys_and_is_bounded_too(tmp_path: Path) -> None:
    with Collector(tmp_path / "data", settings=Settings(query_timeout_s=1)) as collector:
        with asked(collector.url, LONG, JSON) as patient:
            read = patient.read(1)
            time.sleep(0.7)
            read += patient.read()

            assert len(json.loads(read)["rows"]) == MANY
        with asked(collector.url, f"{LONG}, range(50)", ARROW, limit=5_000_000) as idle:
            until(lambda: turns_taken() == 1)
            until(lambda: turns_taken() == 0)  # with nothing read; its turn is free again

            assert ask_rows(collector.url, "select 1") == [[1]]
            with pytest.raises(http.client.IncompleteRead) as cut:
                idle.read()
        assert b"The answer was read too slowly: it waited 1 s for its reader" in cut.value.partial


@pytest.mark.parametrize("path", ["/api/sql", "/api/traces?service=svc&start=0"])
def test_a_client_that_stops_reading_gives_its_turn_back(tmp_path: Path, path: str) -> None:
    bounds = Settings(query_timeout_s=2, max_queries=1)
    with Collector(tmp_path / "data", settings=bounds) as collector:
        long = {"text": "x" * 200_000}
        for trace in range(1, 41):
            post_protobuf(collector.url, body(SpanSpec(trace, kind=2, attributes=long)))
        address = urlsplit(collector.url)
        with socket.create_connection((str(address.hostname), address.port or 0), DEADLINE_S) as stuck:
            sent = json.dumps({"query": "from spans"}).encode() if path == "/api/sql" else b""
            head = f"{'POST' if sent else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\n"
            head += f"Content-Length: {len(sent)}\r\n\r\n"
            stuck.sendall(head.encode() + sent)
            assert b"200 OK" in stuck.recv(100)
            began = time.monotonic()

            until(lambda: post_json(f"{collector.url}/api/sql", {"query": "select 1"}).status == 200)

            assert time.monotonic() - began < 20
            rest = b""
            while came := stuck.recv(1 << 20):
                rest += came
        assert not rest.endswith(b"0\r\n\r\n"), "it was ended as a whole answer is"


def test_an_answer_is_never_held_whole(tmp_path: Path) -> None:
    wide = "select i, repeat(md5(i::varchar), 100) as m from range(1000000) t(i)"
    with Collector(tmp_path / "data") as collector, asked(collector.url, wide, ARROW, limit=60_000) as answer:
        answer.read(1)
        until(lambda: turns_taken() == 1)
        before = most = private_bytes()
        while answer.read(1 << 20):
            most = max(most, private_bytes())

    # The allocator keeps some of what earlier tests freed or not: a third of what went through tells enough.
    assert most - before < 16 * AHEAD_BYTES, "192 MB went through"


@pytest.mark.parametrize(
    ("rows", "limit", "truncated"),
    [(10, None, False), (10, 10, False), (10, 9, True), (MANY, MANY, False), (MANY, MANY - 1, True)],
)
def test_both_forms_say_whether_rows_were_cut(
    collector: Collector, rows: int, limit: int | None, truncated: bool
) -> None:
    query = f"select i, md5(i::varchar) as m from range({rows}) t(i)"  # noqa: S608 - numbers of this module
    with asked(collector.url, query, JSON, limit) as answer:
        assert json.loads(answer.read())["truncated"] is truncated
    with connect(collector.url).sql(query, limit=limit) as result:
        assert sum(batch.num_rows for batch in result.batches()) == min(rows, limit or rows)
        assert result.truncated is truncated


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("data")) as collector:
        yield collector


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 9_000), limit=st.none() | st.integers(0, 10_000), width=st.integers(0, 3_000))
def test_arrow_json_and_the_client_agree(shared: Collector, rows: int, limit: int | None, width: int) -> None:
    query = f"select i, repeat('x', {width}) as x, [i] as l from range({rows}) t(i)"  # noqa: S608 - numbers
    body = {"query": query, "limit": limit}

    as_json = post_json(f"{shared.url}/api/sql", body, Accept=JSON).json
    as_arrow = pa.ipc.open_stream(post_json(f"{shared.url}/api/sql", body).body).read_all()
    result = connect(shared.url).sql(query, limit=limit)

    assert as_json["rows"] == [list(row) for row in zip(*as_arrow.to_pydict().values(), strict=True)]
    assert as_arrow.equals(result.table)
    assert as_json["truncated"] == result.truncated == (limit is not None and limit < rows)


def source_of(kind: str, data: Path, collector: Collector) -> Any:
    return connect(collector.url) if kind == "http" else open_data(data / "local", create=True)


@pytest.mark.parametrize("kind", ["http", "local"])
def test_a_long_answer_is_read_once_in_batches_or_held(
    kind: str, tmp_path: Path, collector: Collector
) -> None:
    source = source_of(kind, tmp_path, collector)

    streamed = source.sql(LONG, limit=MANY)
    assert sum(batch.num_rows for batch in streamed.batches()) == MANY
    assert streamed.truncated is False
    with pytest.raises(InputError, match="Ask again"):
        _ = streamed.table
    with pytest.raises(InputError, match="Ask again"):
        next(streamed.batches())

    held = source.sql(LONG, limit=MANY)
    assert held.table.nbytes > AT_ONCE_BYTES
    assert held.pl().height == len(held.df()) == len(held.rows) == MANY
    assert sum(batch.num_rows for batch in held.batches()) == MANY
    assert turns_taken() == 0
    source.close()


@pytest.mark.parametrize("kind", ["http", "local"])
def test_a_short_answer_stays(kind: str, tmp_path: Path, collector: Collector) -> None:
    source = source_of(kind, tmp_path, collector)
    result = source.sql("select 1 as one")
    source.close()

    assert [batch.to_pydict() for batch in result.batches()] == [{"one": [1]}]
    assert (result.rows, result.truncated, result.columns) == ([(1,)], False, ["one"])


@pytest.mark.parametrize("kind", ["http", "local"])
def test_what_is_not_read_is_let_go(kind: str, tmp_path: Path, collector: Collector) -> None:
    source = source_of(kind, tmp_path, collector)
    with source.sql(LONG, limit=MANY) as result:
        for _ in result.batches():
            break
        assert turns_taken() == 1
    until(lambda: turns_taken() == 0)

    left = source.sql(LONG, limit=MANY)
    until(lambda: turns_taken() == 1)
    del left
    until(lambda: turns_taken() == 0)
    source.close()


def test_a_local_source_closes_over_an_open_answer(tmp_path: Path) -> None:
    source = open_data(tmp_path / "data", create=True)
    result = source.sql(LONG, limit=MANY)
    source.close()

    assert turns_taken() == 0
    assert len(result.columns) == 2
    with open_data(tmp_path / "data") as again:  # type: ignore[attr-defined]  # a LocalSource
        assert again.sql("select 1").rows == [(1,)]


def test_a_collector_that_stops_in_the_midst_breaks_the_answer_off(tmp_path: Path) -> None:
    with Collector(tmp_path / "data") as collector:
        result = connect(collector.url).sql(f"{LONG}, range(50)", limit=5_000_000)
        began = time.monotonic()
        stopping = threading.Thread(target=collector.stop)
        stopping.start()

        with pytest.raises((QueryError, SourceError), match=r"stopping|broke off"):
            for _ in result.batches():
                pass

        stopping.join(DEADLINE_S)
        assert time.monotonic() - began < 20
