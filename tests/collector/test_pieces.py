"""A large request is cut into pieces that say the same, and is answered once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope_collector import Settings, _intake, _pieces
from tailscope_collector._intake import Intake, Outcome
from tailscope_collector._pieces import cut
from tailscope_collector.errors import MalformedRequestError
from tests.collector.building import Bench, SpanSpec, body
from tests.collector.test_intake import Answers

if TYPE_CHECKING:
    from collections.abc import Iterator


def field(number: int, content: bytes) -> bytes:
    """Spell a length-delimited field."""
    size, spelt = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        spelt.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(spelt) + bytes([size]) + content


SPAN_IDS = st.integers(1, 2**63)
SPANS = st.lists(
    st.builds(
        lambda number, text: field(2, field(2, number.to_bytes(8, "big")) + field(5, text.encode())),
        SPAN_IDS,
        st.text(max_size=30),
    ),
    max_size=12,
)
NAMES = st.sampled_from([b"", b"a", b"a longer name of a scope or of a service"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Make a request whose fields come in any order, as protobuf allows."""
    groups = []
    for _ in range(draw(st.integers(0, 4))):
        scopes = []
        for _ in range(draw(st.integers(0, 4))):
            parts = [*draw(SPANS), field(1, field(1, draw(NAMES))), field(15, b"of the future")]
            scopes.append(field(2, b"".join(draw(st.permutations(parts)))))
        head = [field(1, field(1, field(1, b"k") + field(2, field(1, draw(NAMES))))), field(3, draw(NAMES))]
        groups.append(field(1, b"".join(draw(st.permutations([*scopes, *head])))))
    return b"".join([*groups, b"\x98\x06\x01"])


def said(*bodies: bytes) -> list[tuple[str, str, str, str, bytes]]:
    """Return what each span says, with its resource and scope, in order."""
    rows = []
    for request in map(ExportTraceServiceRequest.FromString, bodies):
        for group in request.resource_spans:
            for scope in group.scope_spans:
                place = str(group.resource), group.schema_url, str(scope.scope), scope.schema_url
                rows += [(*place, span.SerializeToString()) for span in scope.spans]
    return rows


@given(requests(), st.integers(1, 200))
def test_the_pieces_say_what_the_request_says(request: bytes, piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pieces, "PIECE_BYTES", piece_bytes)
        pieces = cut(request)

    assert said(*(piece.body(request) for piece in pieces)) == said(request)
    assert sum(piece.span_count for piece in pieces) == len(said(request))
    assert all(piece.span_count for piece in pieces)


@given(requests(), st.integers(0, 400))
def test_a_request_that_is_cut_off_is_refused_or_loses_nothing_that_is_whole(request: bytes, at: int) -> None:
    rest = request[:at]
    try:
        whole = said(rest)
    except Exception:  # noqa: BLE001 - protobuf's own error, whose class depends on its implementation
        with pytest.raises(MalformedRequestError, match="cut off"):
            cut(rest)
        return

    assert said(*(piece.body(rest) for piece in cut(rest))) == whole


@given(st.binary(max_size=300))
def test_bytes_that_are_no_request_are_refused_or_read(raw: bytes) -> None:
    try:
        pieces = cut(raw)
    except MalformedRequestError:
        with pytest.raises(Exception, match=r".*"):
            ExportTraceServiceRequest.FromString(raw)
        return
    assert sum(piece.span_count for piece in pieces) <= len(raw) // 2


KINDS = {
    "262144 resources": b"\x0a\x00" * (1 << 19),
    "262144 scopes": field(1, b"\x12\x00" * (1 << 19)),
    "1048576 spans": field(1, field(2, b"\x12\x00" * (1 << 21))),
    "262144 attributes, events and links in one span": field(1, field(2, field(2, b"\x4a\x00" * (1 << 19)))),
}


@pytest.mark.parametrize("what", KINDS)
def test_a_request_of_nothings_is_refused_by_number(what: str) -> None:
    with pytest.raises(MalformedRequestError, match=f"has over {what}"):
        cut(KINDS[what])


@pytest.mark.parametrize("of", [11, 13], ids=["events", "links"])
def test_what_is_inside_events_and_links_counts(of: int) -> None:
    inside = field(of, (b"\x1a\x00" if of == 11 else b"\x22\x00") * (1 << 19))

    with pytest.raises(MalformedRequestError, match="has over 262144 attributes"):
        cut(field(1, field(2, field(2, inside))))


def test_a_large_resource_is_repeated_a_few_times_only() -> None:
    resource = field(1, field(1, field(1, b"k") + field(2, field(1, b"x" * (2 << 20)))))
    spans = field(2, field(2, field(5, b"n" * 100)) * 40_000)
    request = field(1, resource + spans)

    assert sum(len(piece.body(request)) for piece in cut(request)) < 1.5 * len(request)


def test_a_large_resource_of_many_scopes_is_repeated_a_few_times_only() -> None:
    resource = field(1, field(1, field(1, b"k") + field(2, field(1, b"x" * (2 << 20)))))
    scope = field(2, field(1, field(1, b"scope")) + field(2, field(5, b"n" * 100)))
    request = field(1, resource + scope * 20_000)

    pieces = cut(request)

    assert sum(piece.span_count for piece in pieces) == 20_000
    assert sum(len(piece.body(request)) for piece in pieces) < 1.5 * len(request)


@pytest.fixture
def intake(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Intake]:
    """Take every request of over 300 bytes for a large one, of pieces of 200."""
    monkeypatch.setattr(_intake, "LARGE_BYTES", 300)
    monkeypatch.setattr(_pieces, "PIECE_BYTES", 200)
    made = Intake(bench.decode, bench.reader, bench.committer, bench.counters, Settings())
    yield made
    made.close()


def answered(intake: Intake, request: bytes) -> Outcome:
    answers = Answers()
    intake.start()
    intake.submit(request, answers.expect(0))
    return answers.wait(1)[0]


def test_a_large_request_is_stored_whole_and_answered_once(intake: Intake, bench: Bench) -> None:
    outcome = answered(intake, body(*(SpanSpec(span=n) for n in range(1, 31))))

    assert outcome == Outcome()
    assert bench.rows("select count(*), count(distinct span_id) from span_rows") == [(30, 30)]
    assert intake.held_bytes == 0


def test_what_is_refused_in_pieces_is_said_together(intake: Intake, bench: Bench) -> None:
    request = ExportTraceServiceRequest.FromString(body(*(SpanSpec(span=n) for n in range(1, 31))))
    for bad in (3, 27):
        request.resource_spans[bad].scope_spans[0].spans[0].span_id = b"short"

    outcome = answered(intake, request.SerializeToString())

    assert (outcome.error, outcome.rejected) == (None, 2)
    assert bench.rows("select count(*) from span_rows") == [(28,)]


def test_a_piece_that_is_no_protobuf_costs_no_other_piece(intake: Intake, bench: Bench) -> None:
    request = body(*(SpanSpec(span=n, name="x" * 150) for n in range(1, 11)))
    # The tag of a name of 150 letters, with a wire type that there is not.
    broken = request.replace(b"\x2a\x96\x01", b"\x2f\x96\x01", 1)
    assert broken != request

    outcome = answered(intake, broken)

    assert outcome.error is None
    stored: list[tuple[Any, ...]] = list(bench.rows("select count(*) from span_rows"))
    assert stored[0][0] + outcome.rejected == 10
    assert bench.counters.value("spans_rejected_total") == outcome.rejected > 0


def test_a_request_of_which_nothing_can_be_read_is_malformed(intake: Intake, bench: Bench) -> None:
    broken = field(1, field(2, field(2, b"\x0a\xff" * 200)))

    assert isinstance(answered(intake, broken).error, MalformedRequestError)
    assert bench.rows("select count(*) from span_rows") == [(0,)]


def test_what_cannot_be_cut_for_another_reason_is_refused_and_the_next_is_served(
    intake: Intake, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: bytes) -> list[Any]:
        raise RuntimeError("of no kind that is known")

    with monkeypatch.context() as patch:
        patch.setattr(_intake, "cut", broken)
        outcome = answered(intake, field(15, b"?" * 1000))
    assert "cannot be read" in str(outcome.error)

    answers = Answers()
    intake.submit(body(*(SpanSpec(span=n) for n in range(1, 31))), answers.expect(0))

    assert answers.wait(1)[0] == Outcome()
    assert bench.rows("select count(*) from span_rows") == [(30,)]


def test_a_large_request_without_spans_is_answered(intake: Intake) -> None:
    assert answered(intake, field(15, b"?" * 1000)) == Outcome()


def test_a_commit_that_fails_refuses_the_whole_request(intake: Intake, bench: Bench) -> None:
    bench.committer.close()

    outcome = answered(intake, body(*(SpanSpec(span=n) for n in range(1, 31))))

    assert outcome.error is not None
    assert "send the request again" in str(outcome.error)
