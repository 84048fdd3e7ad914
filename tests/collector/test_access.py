"""Tokens: who is let in, what is said to the others, and what nobody ever sees."""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailscope_analyzer as ta
from tailscope_analyzer import QueryError
from tailscope_collector import Collector, Security, open_data
from tailscope_collector._guards._access import Access, TokenFile, side_of
from tailscope_collector.errors import AccessError
from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, Answer, call, post_json, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.collector.serving import ServeProcess

INGEST, QUERY, OTHER = "ingest-0123456789abcdef", "query-0123456789abcdef0", "other-0123456789abcdef0"
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def bearer(token: str) -> str:
    return f"Bearer {token}"


def write_tokens(path: Path, *tokens: str) -> str:
    path.write_text("\n".join(tokens) + "\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Security:
    folder = tmp_path_factory.mktemp("tokens")
    return Security(
        ingest_token_file=write_tokens(folder / "ingest", INGEST),
        query_token_file=write_tokens(folder / "query", "# of the dashboard", QUERY, "", OTHER),
    )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, files: Security) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("access") / "data", security=files) as made:
        yield made


def ask(url: str, authorization: str | None) -> Answer:
    given_headers = {} if authorization is None else {"Authorization": authorization}
    return post_json(f"{url}/api/sql", {"query": "select 1"}, Accept="application/json", **given_headers)


def send(url: str, authorization: str | None, span: int = 1) -> Answer:
    given_headers = {} if authorization is None else {"Authorization": authorization}
    return post_protobuf(url, body(SpanSpec(span=span)), **given_headers)


def export(address: str, *metadata: tuple[str, str], raw: bytes = b"") -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        code: grpc.StatusCode = method.future(raw, timeout=DEADLINE_S, metadata=metadata).code()
        return code


@pytest.mark.parametrize(
    "authorization", [None, "", bearer("wrong"), bearer(INGEST), QUERY, f"Basic {QUERY}", bearer(QUERY + "x")]
)
def test_a_question_without_its_token_is_not_answered(guarded: Collector, authorization: str | None) -> None:
    answer = ask(guarded.url, authorization)

    assert answer.status == 401
    assert answer.json["error"]["code"] == "unauthenticated"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("authorization", [bearer(QUERY), bearer(OTHER), f"bearer  {QUERY} "])
def test_every_token_of_the_file_is_good(guarded: Collector, authorization: str) -> None:
    assert ask(guarded.url, authorization).json["rows"] == [[1]]


@pytest.mark.parametrize("authorization", [None, bearer(QUERY)])
def test_spans_without_the_ingest_token_are_refused_in_words_of_otlp(
    guarded: Collector, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    text = post_json(f"{guarded.url}/v1/traces", {"resourceSpans": []}, **headers)
    binary = send(guarded.url, authorization)

    assert (text.status, text.json["code"]) == (401, 16)
    assert (binary.status, binary.headers["Content-Type"]) == (401, "application/x-protobuf")
    assert send(guarded.url, bearer(INGEST)).status == 200


def test_grpc_wants_the_ingest_token(guarded: Collector) -> None:
    refused = grpc.StatusCode.UNAUTHENTICATED
    denied = guarded.counters.value("requests_denied_total")

    assert export(guarded.grpc) is refused
    assert export(guarded.grpc, ("authorization", bearer(QUERY))) is refused
    assert export(guarded.grpc, ("authorization", bearer("wrong"))) is refused
    assert export(guarded.grpc, ("authorization", bearer(INGEST)), raw=body(SpanSpec())) is grpc.StatusCode.OK
    assert guarded.counters.value("requests_denied_total") == denied + 3


def test_grpc_refuses_before_it_reads(guarded: Collector) -> None:
    """A call whose body never comes is refused all the same."""
    with grpc.insecure_channel(guarded.grpc) as channel:
        method = channel.stream_unary(EXPORT, request_serializer=None, response_deserializer=None)

        def never() -> Iterator[bytes]:
            time.sleep(3)
            yield b""

        started = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            method(never(), timeout=DEADLINE_S)

    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert time.monotonic() - started < 2.5


def test_http_refuses_before_it_reads(guarded: Collector) -> None:
    address = urlsplit(guarded.url)
    with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE_S) as peer:
        peer.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")

        assert peer.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 200), ("/metrics", 401)])
def test_supervisors_need_no_token_and_prometheus_does(guarded: Collector, path: str, status: int) -> None:
    assert call(f"{guarded.url}{path}").status == status
    assert call(f"{guarded.url}{path}", Authorization=bearer(QUERY)).status == 200


@pytest.mark.parametrize("path", ["/nothing", "/api/traces/1", "/v1/nothing", "/openapi.json", "//v1/traces"])
def test_what_nobody_serves_is_closed_as_well(guarded: Collector, path: str) -> None:
    assert call(f"{guarded.url}{path}").status == 401


@given(st.text(alphabet="/v1apisqltrceshz2.%-_ ", max_size=30))
def test_every_path_but_two_wants_a_token(path: str) -> None:
    assert side_of(path) is not None or path in {"/healthz", "/readyz"}


def test_the_client_takes_a_token_a_file_or_the_environment(
    guarded: Collector, files: Security, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAILSCOPE_TOKEN", raising=False)
    with ta.connect(guarded.url) as client, pytest.raises(QueryError, match="wants a query token"):
        client.sql("select 1")
    with (
        ta.connect(guarded.url, token=INGEST) as client,
        pytest.raises(QueryError, match="not take this token"),
    ):
        client.sql("select 1")
    with ta.connect(guarded.url, token_file=files.query_token_file) as client:
        assert client.sql("select 1").rows == [(1,)]
    monkeypatch.setenv("TAILSCOPE_TOKEN_FILE", str(files.query_token_file))
    with ta.connect(guarded.url) as client:
        assert client.sql("select 1").rows == [(1,)]
    monkeypatch.setenv("TAILSCOPE_TOKEN", OTHER)
    with ta.connect(guarded.url) as client:
        assert client.sql("select 1").rows == [(1,)]


def test_the_owner_of_the_directory_needs_no_token(files: Security, tmp_path: Path) -> None:
    left = tmp_path / "data" / "collector.access"

    with Collector(tmp_path / "data", security=files):
        with open_data(tmp_path / "data") as source:  # type: ignore[attr-defined]
            assert source.sql("select 1").rows == [(1,)]
        assert left.stat().st_mode & 0o777 == 0o600
        assert INGEST not in left.read_text()
        assert QUERY not in left.read_text()
    assert not left.exists()


def test_without_tokens_nothing_is_left_for_an_owner(collector: Collector, tmp_path: Path) -> None:
    assert collector.url.startswith("http://")
    assert (tmp_path / "data" / "collector.json").exists()
    assert not (tmp_path / "data" / "collector.access").exists()


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = [0.0]
    path = tmp_path / "tokens"
    tokens = TokenFile(write_tokens(path, INGEST), clock=lambda: now_s[0])

    def admits(token: str) -> bool:
        now_s[0] += 2
        return tokens.admits(token.encode())

    assert admits(INGEST)
    assert not admits(OTHER)
    write_tokens(path, INGEST, OTHER)
    assert admits(OTHER)
    write_tokens(path, OTHER)
    assert not admits(INGEST)
    write_tokens(path, "short")
    os.utime(path, ns=(1, 1))
    assert admits(OTHER)
    path.unlink()
    assert admits(OTHER)
    assert "kept as they were" in caplog.text
    assert OTHER not in caplog.text
    assert "short" not in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no token"),
        ("# only this\n\n", "holds no token"),
        ("short\n", "16 or more"),
        ("blank in a token line\n", "16 or more"),
    ],
)
def test_a_file_without_a_usable_token_is_an_error_that_shows_none(
    tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)

    with pytest.raises(AccessError, match=said) as caught:
        TokenFile(str(path))
    assert content.strip() == "" or content.strip() not in str(caught.value)
    with pytest.raises(AccessError, match="Cannot read --query-token-file"):
        TokenFile(str(tmp_path / "nothing"), flag="--query-token-file")


def test_a_file_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_tokens(tmp_path / "tokens", INGEST)
    TokenFile(path)
    assert not caplog.records
    Path(path).chmod(0o644)

    with caplog.at_level(logging.WARNING):
        TokenFile(path)

    assert "chmod 600" in caplog.text


@given(st.binary(max_size=60))
def test_no_other_bytes_are_a_token(tmp_path_factory: pytest.TempPathFactory, presented: bytes) -> None:
    path = write_tokens(tmp_path_factory.mktemp("tokens") / "file", INGEST)
    access = Access(ingest=TokenFile(path))

    assert access.refusal("ingest", presented) is not None
    assert access.refusal("ingest", b"Bearer " + presented) is not None
    assert access.refusal("ingest", b"Bearer " + INGEST.encode()) is None
    assert access.refusal("query", presented) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "collector.example"])  # noqa: S104 - refused
@pytest.mark.parametrize("half", ["none", "ingest"])
def test_others_are_not_let_in_by_accident(tmp_path: Path, files: Security, host: str, half: str) -> None:
    given_files = Security(ingest_token_file=files.ingest_token_file) if half == "ingest" else Security()

    with pytest.raises(AccessError, match=r"--query-token-file.*--allow-unauthenticated"):
        Collector(tmp_path / "data", host=host, security=given_files)
    assert not (tmp_path / "data").exists()


def test_an_open_address_is_possible_on_purpose(tmp_path: Path, files: Security) -> None:
    for number, chosen in enumerate((files, Security(allow_unauthenticated=True))):
        with Collector(tmp_path / str(number), host="0.0.0.0", security=chosen) as made:  # noqa: S104
            assert call(f"http://127.0.0.1:{made.url.rpartition(':')[2]}/healthz").status == 200


def test_the_command_takes_files_and_shows_no_token(
    serve: Callable[..., ServeProcess], files: Security
) -> None:
    process = serve(
        "--ingest-token-file", str(files.ingest_token_file), "--query-token-file", str(files.query_token_file)
    )
    assert send(process.url, bearer(INGEST)).status == 200
    assert ask(process.url, bearer("wrong-" + QUERY)).status == 401
    denied = call(f"{process.url}/metrics", Authorization=bearer(QUERY)).body.decode()
    assert 'requests_denied_total{reason="unauthenticated"} 1' in denied

    assert process.terminate() == 0

    said = "".join(process.said)
    assert all(token not in said for token in (INGEST, QUERY, OTHER))
