"""Content types, codings and the bound after decompression."""

from __future__ import annotations

import gzip
import zlib

import pytest
import zstandard

from tailscope_collector._bodies import decompress, format_of
from tailscope_collector.errors import MalformedRequestError, RequestTooLargeError, UnsupportedMediaError

PLAIN = b"spans " * 1000
RAW = zlib.compressobj(wbits=-15)
CODED = {
    "gzip": gzip.compress(PLAIN),
    "GZIP": gzip.compress(PLAIN[:100]) + gzip.compress(PLAIN[100:]),
    "deflate": zlib.compress(PLAIN),
    " deflate ": RAW.compress(PLAIN) + RAW.flush(),
    "zstd": zstandard.compress(PLAIN),
    "identity": PLAIN,
}


@pytest.mark.parametrize("coding", CODED)
def test_codings_are_undone(coding: str) -> None:
    assert decompress(CODED[coding], coding, limit=len(PLAIN)) == PLAIN


@pytest.mark.parametrize("coding", CODED)
def test_the_bound_holds_after_decompression(coding: str) -> None:
    with pytest.raises(RequestTooLargeError):
        decompress(CODED[coding], coding, limit=len(PLAIN) - 1)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(200_000_000), 1)

    with pytest.raises(RequestTooLargeError):
        decompress(bomb, "gzip", limit=1000)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
def test_what_is_not_in_its_coding_is_malformed(coding: str) -> None:
    for body in (PLAIN, CODED[coding][:-10]):
        with pytest.raises(MalformedRequestError):
            decompress(body, coding, limit=1_000_000)


def test_other_codings_are_not_supported() -> None:
    with pytest.raises(UnsupportedMediaError, match="br is not spoken here"):
        decompress(b"x", "br", limit=10)


@pytest.mark.parametrize(
    "name", ["application/json", "Application/JSON; charset=utf-8", " application/json "]
)
def test_parameters_and_case_of_a_content_type_do_not_count(name: str) -> None:
    assert format_of(name) == "json"


@pytest.mark.parametrize("name", [None, "", "text/plain", "application/xml"])
def test_other_content_types_are_not_supported(name: str | None) -> None:
    with pytest.raises(UnsupportedMediaError):
        format_of(name)
