"""What a page in a browser, or a head that is too large, gets from the HTTP port."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_collector import Collector, Security
from tailscope_collector._guards._hosts import Hosts, host_name, is_loopback
from tests.collector.serving import DEADLINE_S, call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.collector.serving import ServeProcess

LONG = "a" * 63 + "." + "b" * 63


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("gate") / "data") as made:
        yield made


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:4318", "127.0.0.1:1", "[::1]:4318", "192.0.2.7", "app.localhost", "localhost."],
)
def test_addresses_and_localhost_are_answered(collector: Collector, host: str) -> None:
    assert call(f"{collector.url}/api/info", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["attacker.example", "attacker.example:4318", "127.0.0.1.attacker.example", "localhost.evil", LONG, "x"],
)
def test_a_rebound_name_is_not_answered(collector: Collector, host: str) -> None:
    denied = collector.counters.value("requests_denied_total")

    answer = call(f"{collector.url}/api/info", Host=host)

    assert (answer.status, answer.json["error"]["code"]) == (403, "forbidden")
    assert "--allowed-host" in answer.json["error"]["message"]
    assert (
        call(f"{collector.url}/v1/traces", b"{}", Host=host, Content_Type="application/json").json["code"]
        == 7
    )
    assert collector.counters.value("requests_denied_total") == denied + 2


def test_a_name_that_the_operator_gives_is_answered(tmp_path: Path) -> None:
    with Collector(tmp_path / "data", security=Security(allowed_hosts=("Tail.Example",))) as made:
        assert call(f"{made.url}/api/info", Host="tail.example:443").status == 200
        assert call(f"{made.url}/api/info", Host="other.example").status == 403


def test_where_a_token_is_asked_for_the_name_does_not_count(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("query-0123456789abcdef")
    tokens.chmod(0o600)
    with Collector(tmp_path / "data", security=Security(query_token_file=str(tokens))) as made:
        shown = {"Authorization": "Bearer query-0123456789abcdef"}
        assert call(f"{made.url}/api/info", Host="any.example", **shown).status == 200
        assert call(f"{made.url}/v1/traces", b"", Host="any.example").status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200),
        ({"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate"}, 200),
    ],
)
def test_pages_of_other_sites_are_not_answered(
    collector: Collector, headers: dict[str, str], status: int
) -> None:
    assert call(f"{collector.url}/api/info", **headers).status == status


def test_a_page_of_our_own_origin_is_answered_and_no_other_is_told_that_it_may_read(
    collector: Collector,
) -> None:
    answer = call(f"{collector.url}/api/info", Origin=collector.url)

    assert answer.status == 200
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"X: " + b"a" * 15_000 + b"\r\n", 200),
        (b"X: " + b"a" * 20_000 + b"\r\n", 431),
        (b"X: a\r\n" * 90, 200),
        (b"X: a\r\n" * 110, 431),
        (b"X: a\r\n" * 20_000, 431),
        (b"X: " + b"a" * 5_000_000 + b"\r\n", 431),
        (b"\x00: a\r\n", 400),
    ],
)
def test_a_head_is_bounded(collector: Collector, head: bytes, status: int) -> None:
    address = urlsplit(collector.url)
    with socket.create_connection((address.hostname or "", address.port or 0), DEADLINE_S) as peer:
        try:
            peer.sendall(b"GET /api/info HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
            said = peer.recv(100)
        except ConnectionError:
            said = b"HTTP/1.1 431 (cut off while it was sending)"

    assert said.startswith(f"HTTP/1.1 {status}".encode())


def test_what_a_client_sends_is_in_no_log(serve: Callable[..., ServeProcess]) -> None:
    process = serve()
    said = b"\x00\x00\x00\x00\x00\x00\x00\x07" + b"SECRET-VALUE"
    frame = len(said).to_bytes(3, "big") + b"\x07\x00\x00\x00\x00\x00" + said  # GOAWAY, with a text
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + frame
    host, _, port = process.grpc.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
        peer.sendall(sent)
        assert peer.recv(1000)
    call(f"{process.url}/SECRET-VALUE", b"SECRET-VALUE", Content_Type="SECRET-VALUE", Host="SECRET-VALUE")
    body = b'{"resourceSpans": [{"SECRET-VALUE": "SECRET-VALUE"'
    call(f"{process.url}/v1/traces", body, Content_Type="application/json", X="SECRET-VALUE")
    call(f"{process.url}/api/sql", b'{"query": "select SECRET-VALUE"}', Content_Type="application/json")

    assert process.terminate() == 0

    assert "SECRET" not in "".join(process.said)


def test_a_long_path_is_too_large(collector: Collector) -> None:
    assert call(f"{collector.url}/{'a' * 16_000}").status == 404
    assert call(f"{collector.url}/{'a' * 17_000}").status == 431


@given(st.from_regex(r"[a-z0-9.-]{1,40}", fullmatch=True), st.integers(0, 65535))
def test_no_name_but_ours_is_allowed(name: str, port: int) -> None:
    hosts = Hosts("127.0.0.1", ["tail.example"])
    plain = host_name(name)
    ours = plain in {"localhost", "tail.example"} or plain.endswith(".localhost")
    address = all(part.isdigit() for part in plain.split("."))

    assert hosts.allows(f"{name}:{port}") <= (ours or address)
    assert not ours or hosts.allows(f"{name}:{port}")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - a name, bound by nobody
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
    ],
)
def test_which_addresses_are_this_machine_alone(host: str, *, loopback: bool) -> None:
    assert is_loopback(host) is loopback
