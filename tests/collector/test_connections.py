"""Connections that are slow, idle or too many: they end, and the others do not notice."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_collector import Collector, Settings
from tailscope_collector._guards import _descriptors
from tailscope_collector._guards._connections import LET_GO, Bounds, Connections, Wait
from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ask_rows, call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Collector]:
    settings = Settings(head_timeout_s=1, body_timeout_s=1, max_connections=40)
    with Collector(tmp_path / "data", settings=settings) as made:
        yield made


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def connected(peers: ExitStack, collector: Collector, sent: bytes = b"") -> socket.socket:
    address = urlsplit(collector.url)
    peer = peers.enter_context(
        socket.create_connection((address.hostname or "", address.port or 0), DEADLINE_S)
    )
    peer.sendall(sent)
    return peer


def heard(peer: socket.socket) -> bytes:
    """Return what comes until the collector closes; fails after the deadline."""
    parts: list[bytes] = []
    try:
        while part := peer.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.mark.parametrize("sent", [b"", b"POST /v1/tr", HEAD])
def test_a_head_that_does_not_come_ends_the_connection(
    impatient: Collector, peers: ExitStack, sent: bytes
) -> None:
    said = heard(connected(peers, impatient, sent))

    assert said == b"" if not sent else said.startswith(b"HTTP/1.1 408")
    assert 'connections_closed_total{reason="slow_head"} 1' in impatient.counters.prometheus()


@pytest.mark.parametrize("trickle", [HEAD[:40], HEAD + b"Content-Length: 1000\r\n\r\n"])
def test_a_client_that_trickles_is_let_go(impatient: Collector, peers: ExitStack, trickle: bytes) -> None:
    """A byte now and then buys no time."""
    peer = connected(peers, impatient, trickle)
    peer.settimeout(0.2)
    deadline = time.monotonic() + 10
    said = b""
    while time.monotonic() < deadline and not said:
        try:
            peer.sendall(b"x")
            said = peer.recv(100) or b"closed"
        except TimeoutError:
            continue
        except ConnectionError:
            said = b"reset"

    assert said
    assert time.monotonic() < deadline


def test_a_connection_that_is_kept_gets_the_time_for_each_request(
    impatient: Collector, peers: ExitStack
) -> None:
    raw = body(SpanSpec())
    request = HEAD + f"Content-Length: {len(raw)}\r\n\r\n".encode() + raw
    peer = connected(peers, impatient)
    for _ in range(3):
        peer.sendall(request)
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")
        time.sleep(0.6)  # together longer than the time of one head
    assert ask_rows(impatient.url, "select count(*) from spans") == [[1]]


def test_a_new_connection_takes_the_place_of_the_one_that_waits_longest(
    impatient: Collector, peers: ExitStack
) -> None:
    first = connected(peers, impatient, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert first.recv(1000).startswith(b"HTTP/1.1 200")
    for _ in range(100):
        connected(peers, impatient, b"POST /v1/tr")

    assert call(f"{impatient.url}/healthz").status == 200
    assert post_protobuf(impatient.url, body(SpanSpec())).status == 200
    assert 'connections_closed_total{reason="full"}' in impatient.counters.prometheus()


def test_a_body_that_is_not_wanted_is_thrown_away_for_a_while_only(
    impatient: Collector, peers: ExitStack
) -> None:
    """An answer comes at once; the rest of the body is read so that its sender sees it, but not for ever."""
    peer = connected(
        peers, impatient, b"POST /api/info HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n"
    )
    assert peer.recv(1000).startswith(b"HTTP/1.1 405")
    started = time.monotonic()

    with suppress(ConnectionError):
        while time.monotonic() - started < 20:
            peer.sendall(b"x")
            time.sleep(0.1)

    assert 3 < time.monotonic() - started < 12


@pytest.mark.parametrize(
    "around", [b"0\r\nX: " + b"y" * 40_000, b"0\r\n" + b"a: b\r\n" * 7_000, b"5;" + b"y" * 40_000]
)
def test_what_is_around_a_body_is_bounded_as_a_head_is(
    collector: Collector, peers: ExitStack, around: bytes
) -> None:
    """A parser keeps trailers until they end, and copies them with each piece that comes."""
    peer = connected(peers, collector, HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
    for start in range(0, len(around), 1_000):
        try:
            peer.sendall(around[start : start + 1_000])
        except OSError:
            break
        time.sleep(0.001)

    assert heard(peer).startswith(b"HTTP/1.1 431")


def test_a_large_body_in_small_chunks_with_trailers_is_taken(collector: Collector, peers: ExitStack) -> None:
    sent = body(*(SpanSpec(span=span) for span in range(1, 2_000)))
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(part), part) for part in _sliced(sent, 100))
    ends = b"0\r\nX-Sum: 1\r\n\r\n"
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"

    assert heard(connected(peers, collector, head + chunks + ends)).startswith(b"HTTP/1.1 200")


def _sliced(whole: bytes, size: int) -> list[bytes]:
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def test_requests_sent_far_ahead_of_their_answers_end_the_connection(
    impatient: Collector, peers: ExitStack
) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

    assert heard(connected(peers, impatient, request * 9 + last)).count(b"HTTP/1.1 200") == 10
    assert heard(connected(peers, impatient, request * 999 + last)).count(b"HTTP/1.1 200") < 100


class Fake:
    """Stands for a protocol: it says when it was let go."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.wait: Wait | None = Wait.HEAD
        self.gone = False

    def let_go(self) -> None:
        self.gone = True
        self.connections.move(self, self.wait, None)  # type: ignore[arg-type]  # stands for a protocol
        self.wait = None


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(list(Wait)), st.floats(0, 40)), max_size=60))
def test_nobody_waits_longer_than_allowed_and_places_are_never_exceeded(
    events: list[tuple[int, Wait, float]],
) -> None:
    """Whatever connections do: there are at most so many, and after a sweep none is over its time."""
    now_s, closed = [0.0], list[str]()
    bounds = Bounds(connections=8)
    connections = Connections(bounds, closed.append, clock=lambda: now_s[0])
    fakes: dict[int, Fake] = {}
    since: dict[int, float] = {}
    for number, wait, passed_s in events:
        now_s[0] += passed_s
        connections.sweep()
        for key, fake in fakes.items():
            late = fake.wait not in {None, Wait.NOTHING} and now_s[0] - since[key] >= bounds.limit_s(
                fake.wait or Wait.HEAD
            )
            assert not late
        if number not in fakes or fakes[number].gone:
            made = Fake(connections)
            busy = connections.count(Wait.NOTHING) + connections.count(Wait.READER)
            assert connections.admit(made) is (busy < bounds.connections)  # type: ignore[arg-type]
            if len(connections) and made.wait and busy < bounds.connections:
                fakes[number], since[number] = made, now_s[0]
        else:
            fake = fakes[number]
            connections.move(fake, fake.wait, wait)  # type: ignore[arg-type]
            fake.wait, since[number] = wait, now_s[0]
        assert len(connections) <= bounds.connections
        assert len(connections) == sum(not fake.gone for fake in fakes.values())


@given(st.integers(64, 1 << 20), st.integers(16, 1_000_000))
def test_both_ports_together_leave_files_for_the_store(limit: int, wanted: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_descriptors, "_raised", lambda: limit)
        found = _descriptors.places(wanted)

    assert min(found.http, found.grpc) >= min(wanted, _descriptors.LEAST)
    assert max(found.http, found.grpc) <= wanted
    if limit >= _descriptors.RESERVED + 2 * _descriptors.LEAST:
        assert found.http + found.grpc + _descriptors.RESERVED <= limit


def test_the_limit_of_open_files_is_raised_and_told(collector: Collector) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    assert f"open_files_limit {min(hard, 1 << 20)}" in call(f"{collector.url}/metrics").body.decode()


def test_those_who_answer_are_never_let_go() -> None:
    assert Wait.NOTHING not in LET_GO
    assert Wait.READER not in LET_GO
