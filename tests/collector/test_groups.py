"""Requests made to overrun the decoder's stack are refused, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_collector._decoders import load_decoder
from tailscope_collector._groups import DEEP_SAFE_BYTES, SAFE_BYTES, check_groups
from tailscope_collector.errors import MalformedRequestError
from tests.collector.building import SpanSpec, body
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector import Collector
    from tests.collector.serving import ServeProcess

GROUP = b"["  # field 11, a group begins


def field(number: int, content: bytes) -> bytes:
    size, length = len(content), b""
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def inside(path: tuple[int, ...], content: bytes) -> bytes:
    for number in reversed(path):
        content = field(number, content)
    return content


# request > resource > scope > span > attribute > value, event > attribute, link, status
PLACES = [
    (),
    (1,),
    (1, 2),
    (1, 2, 2),
    (1, 2, 2, 9),
    (1, 2, 2, 9, 2),
    (1, 2, 2, 11),
    (1, 2, 2, 11, 3),
    (1, 2, 2, 13),
]


@pytest.mark.parametrize("path", PLACES)
def test_a_collector_survives_groups_without_end_in_every_message(
    serve: Callable[..., ServeProcess], path: tuple[int, ...]
) -> None:
    server = serve()
    for levels in (DEEP_SAFE_BYTES - 1024, 2_000_000):
        for padding in (b"", b"\x08\x00"):
            assert post_protobuf(server.url, inside(path, (GROUP + padding) * levels)).status == 400
    assert post_protobuf(server.url, body(SpanSpec())).status == 200
    assert call(f"{server.url}/healthz").status == 200


def test_the_decoder_survives_what_is_not_looked_into_on_an_ordinary_stack() -> None:
    """In a process of its own: a failure would end this one."""
    script = (
        "from tailscope_collector._decoders import load_decoder\n"
        "from tailscope_collector.errors import MalformedRequestError\n"
        f"for levels in ({SAFE_BYTES}, 3_000_000):\n"
        "    try: load_decoder()([b'[' * levels])\n"
        "    except MalformedRequestError: print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (0, "refused\nrefused\n")


def test_large_requests_without_groups_pass(collector: Collector) -> None:
    large = body(*(SpanSpec(span=n, attributes={"text": "[[[[" * 50, "n": n}) for n in range(1, 3001)))
    assert len(large) > DEEP_SAFE_BYTES

    check_groups(large)

    assert post_protobuf(collector.url, large).status == 200
    assert len(load_decoder()([large])) == 1


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_pass_or_are_refused(noise: bytes) -> None:
    padded = field(1, noise) + field(1, b"\x00" * SAFE_BYTES)

    try:
        check_groups(padded)
    except MalformedRequestError as error:
        assert "groups" in str(error)  # noqa: PT017 - most pass
