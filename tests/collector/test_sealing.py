"""Sealed or not, the same rows: nothing is seen twice or missed, whatever is sealed, late or killed."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailscope_collector._sealed import _sealing
from tailscope_collector._sealed._sealing import Sealer
from tailscope_collector.errors import StoreError
from tests.collector.building import MS, NEW_YEAR_NS, Bench, SpanSpec, body

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from tailscope_collector._sealed._sealing import Chooser, Sealed

EVERYTHING = (
    "select * exclude (batch_seq) from spans order by trace_id, span_id, kind, start_unix_nano",
    "select * from requests order by trace_id",
    "select * from stages order by trace_id, service, stage, category, operation",
    "select * from dependencies order by all",
    "select * from span_tree order by all",
)
ALL = 1 << 40


class Sealable(Bench):
    """A store that is sealed by hand."""

    def __init__(self, path: Path, chooser: Chooser | None = None) -> None:
        super().__init__(path)
        self.settler = self.source.settler
        self.sealer = Sealer(self.store, self.settler, chooser)

    def seal(self, *, quiet_seq: int = ALL, most_spans: int = ALL) -> Sealed | None:
        return self.sealer.seal(quiet_seq=quiet_seq, most_spans=most_spans)

    def everything(self) -> list[Any]:
        return [self.rows(query) for query in EVERYTHING]


@pytest.fixture
def sealable(tmp_path: Path) -> Any:
    with Sealable(tmp_path / "data") as made:
        yield made


def rich(trace: int) -> bytes:
    """Return a trace with all that a span can have."""
    root = SpanSpec(
        trace,
        1,
        kind=2,
        name="POST /predict",
        duration_ns=9 * MS,
        attributes={"http.response.status_code": 200},
    )
    return body(
        root,
        SpanSpec(
            trace,
            2,
            parent=1,
            name="inference",
            attributes={"gen_ai.request.model": "m", "n": 3, "ok": True, "x": 1.5},
        ),
        SpanSpec(trace, 3, parent=1, kind=3, name="GET user", service="svc", status=2),
        SpanSpec(trace, 3, parent=1, kind=2, name="GET user", service="users"),
        SpanSpec(trace, 4, parent=1, start_ns=0, duration_ns=5),
        SpanSpec(trace, 5, parent=9, duration_ns=-7),
    )


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Draw what happens to a store: batches of spans of a few traces, sealings, questions."""
    specs = [
        SpanSpec(
            trace=trace,
            span=span,
            parent=draw(st.integers(0, 4)),
            name=draw(st.sampled_from(["POST /predict", "queue", "inference", "db"])),
            kind=draw(st.integers(0, 5)),
            start_ns=NEW_YEAR_NS + draw(st.integers(0, 50)) * MS,
            duration_ns=draw(st.integers(-2, 50)) * MS,
            service=draw(st.sampled_from(["a", "b"])),
            attributes={"batch.size": span},
        )
        for trace in range(1, draw(st.integers(1, 4)) + 1)
        for span in range(1, draw(st.integers(1, 5)) + 1)
    ]
    shuffled = draw(st.permutations(specs))
    cuts = sorted(draw(st.sets(st.integers(1, len(specs)), max_size=4)))
    made: list[tuple[str, Any]] = []
    for start, end in zip([0, *cuts], [*cuts, len(specs)], strict=True):
        if start < end:
            made.append(("spans", shuffled[start:end]))
            if draw(st.booleans()):
                made.append(("again", shuffled[start : start + 1]))
        others = st.sampled_from([("seal", 0), ("seal", 1), ("seal", ALL), ("ask", 0), ("open", 0)])
        made += draw(st.lists(others, max_size=2))
    return made


def play(path: Path, moves: Sequence[tuple[str, Any]], *, sealing: bool) -> list[Any]:
    bench = Sealable(path)
    try:
        for move, what in moves:
            if move in {"spans", "again"}:
                bench.ingest(body(*what))
            elif move == "ask":
                bench.rows("select count(*) from requests")
            elif move == "seal" and sealing:
                bench.seal(quiet_seq=bench.committer.batch_seq - what if what != ALL else ALL, most_spans=3)
            elif move == "open":
                bench.__exit__()
                bench = Sealable(path)
        return bench.everything()
    finally:
        bench.__exit__()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(moves=steps())
def test_whatever_is_sealed_when_the_views_show_the_same(moves: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as work:
        plain = play(Path(work) / "plain", moves, sealing=False)

        assert play(Path(work) / "sealed", moves, sealing=True) == plain


def test_a_segment_holds_all_that_a_span_has(sealable: Sealable) -> None:
    sealable.ingest(*(rich(trace) for trace in range(1, 30)))
    before = sealable.everything()

    sealed = sealable.seal()

    assert sealed is not None
    assert (sealed.spans, sealed.traces) == (29 * 6, 29)
    assert sealable.rows("select count(*) from span_rows") == [(0,)]
    assert sealable.everything() == before
    trace = sealable.source.trace(f"{3:032x}")
    assert len(trace["spans"]) == 6
    assert {span["resource"]["service.name"] for span in trace["spans"]} == {"svc", "users"}


def test_late_spans_reopen_a_sealed_trace(sealable: Sealable) -> None:
    sealable.ingest(body(SpanSpec(1, 2, parent=1, name="inference", duration_ns=MS)))
    sealable.seal()
    assert sealable.rows("select complete, span_count from requests") == [(False, 1)]

    sealable.ingest(body(SpanSpec(1, 1, kind=2, name="POST /predict")))

    assert sealable.rows("select complete, span_count, operation from requests") == [
        (True, 2, "POST /predict")
    ]
    assert sealable.rows("select sum(self_ms) from stages") == [(5.0,)]
    sealable.seal()
    assert sealable.rows("select complete, span_count, operation from requests") == [
        (True, 2, "POST /predict")
    ]
    assert sealable.rows("select sum(self_ms) from stages") == [(5.0,)]
    assert sealable.rows("select count(*) from segment_rows") == [(2,)]


def test_a_span_that_is_sealed_is_not_stored_again(sealable: Sealable, tmp_path: Path) -> None:
    sealable.ingest(rich(1))
    sealable.seal()

    assert sealable.ingest(rich(1)) == 6
    sealable.__exit__()
    with Sealable(tmp_path / "data") as again:
        assert again.ingest(rich(1)) == 6
        assert again.rows("select count(*) from spans") == [(6,)]


def test_what_changes_while_a_segment_is_written_counts_once(
    sealable: Sealable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span arrives, and somebody asks, between the files and the transaction that lists them."""
    sealable.ingest(rich(1), rich(2))
    write = _sealing._write

    def late(*given: Any) -> Any:
        done = write(*given)
        sealable.ingest(body(SpanSpec(1, 7, parent=1, name="late", start_ns=NEW_YEAR_NS, duration_ns=MS)))
        assert sealable.rows("select span_count from requests order by trace_id") == [(7,), (6,)]
        return done

    monkeypatch.setattr(_sealing, "_write", late)
    sealable.seal()
    monkeypatch.undo()

    assert sealable.rows("select span_count from requests order by trace_id") == [(7,), (6,)]
    assert sealable.rows("select count(*) from spans") == [(13,)]
    sealable.ingest(body(SpanSpec(1, 8, parent=1, name="later", duration_ns=MS)))
    assert sealable.rows("select span_count from requests order by trace_id") == [(8,), (6,)]
    sealable.seal()
    assert sealable.rows("select span_count from requests order by trace_id") == [(8,), (6,)]
    assert sealable.rows("select count(*) from spans") == [(14,)]


@pytest.mark.parametrize("fails", ["_write", "standing_still"])
def test_a_sealing_that_fails_changes_nothing(
    sealable: Sealable, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    sealable.ingest(rich(1))
    before = sealable.everything()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(*((_sealing, "_write") if fails == "_write" else (sealable.settler, fails)), fail)
    with pytest.raises(OSError, match="no space"):
        sealable.seal()
    monkeypatch.undo()

    assert sealable.everything() == before
    assert [path.name for path in sealable.store.segments.folder.iterdir()] == ["empty"]
    assert sealable.seal() is not None
    assert sealable.everything() == before


def test_what_a_killed_process_left_half_written_is_deleted_and_never_read(tmp_path: Path) -> None:
    with Sealable(tmp_path / "data") as bench:
        bench.ingest(rich(1))
        bench.seal()
        before = bench.everything()
    half = tmp_path / "data" / "segments" / "00000002"
    half.mkdir()
    (half / "spans.parquet").write_bytes(b"PAR1 half")
    mine = tmp_path / "data" / "segments" / "notes.txt"
    mine.write_text("not ours")

    with Sealable(tmp_path / "data") as bench:
        assert bench.everything() == before
        assert not half.exists()
        assert mine.exists()


def test_a_folder_that_somebody_else_named_stays(tmp_path: Path) -> None:
    with Sealable(tmp_path / "data") as bench:
        bench.ingest(rich(1))
        bench.seal()
    day = tmp_path / "data" / "segments" / "20261130"
    day.mkdir()
    (day / "spans.parquet").write_text("a copy")
    note = tmp_path / "data" / "segments" / "00000002" / "note.txt"
    note.parent.mkdir()
    note.write_text("not ours")

    with Sealable(tmp_path / "data"):
        assert (day / "spans.parquet").exists()
        assert note.exists()


def test_segments_outlive_the_loss_of_the_database_that_lists_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    with Sealable(data) as bench:
        bench.ingest(rich(1))
        bench.seal()
    (data / "active.duckdb").unlink()
    spans = data / "segments" / "00000001" / "spans.parquet"

    with pytest.raises(StoreError, match="batch 1 was acknowledged"):
        Sealable(data)
    assert spans.exists()

    (data / "acknowledged").unlink()
    for _ in range(2):  # not deleted later, either
        with Sealable(data) as bench:
            assert bench.rows("select count(*) from spans") == [(0,)]
    aside = data / "segments" / "00000001.unlisted" / "spans.parquet"
    assert str(aside.parent) in caplog.text
    assert pl.read_parquet(aside).height == 6


@pytest.mark.parametrize("damage", ["missing", "cut", "replaced", "no folder"])
def test_a_segment_that_lost_a_file_hides_no_other_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    data = tmp_path / "data"
    with Sealable(data) as bench:
        for trace in (1, 2):
            bench.ingest(rich(trace))
            bench.seal()
    folder = data / "segments" / "00000001"
    lost = folder / "spans.parquet"
    whole = lost.read_bytes()
    if damage == "cut":
        lost.write_bytes(whole[:-100])
    elif damage == "replaced":
        lost.write_bytes(b"something else")
    else:
        lost.unlink()
    if damage == "no folder":
        shutil.rmtree(folder)

    with Sealable(data) as bench:
        assert bench.rows("select count(distinct trace_id) from spans") == [(1,)]
        assert bench.store.segments.lost_count() > 0
        assert str(lost) in caplog.text
        # Late spans, and spans sent again, of what is lost: neither stops what comes with them.
        assert bench.ingest(body(SpanSpec(1, 9, parent=1)), rich(3)) == 0
        bench.ingest(rich(1))
        requests = bench.rows("select count(*) from requests")
        assert requests == [(3,)]
        assert bench.seal() is not None
        assert bench.rows("select count(*) from requests") == requests
        if damage == "missing":
            lost.write_bytes(whole)
            assert bench.rows("select count(distinct trace_id) from spans") == [(3,)]
            assert bench.store.segments.lost_count() == 0


def test_readers_see_each_span_once_while_segments_come_and_go(sealable: Sealable) -> None:
    for first in range(0, 600, 100):
        sealable.ingest(*(rich(trace) for trace in range(first + 1, first + 101)))
    stop, wrong = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            seen = sealable.rows("select count(*), count(distinct (trace_id, span_id, kind)) from spans")[0]
            asked = sealable.rows("select count(*), count(distinct trace_id), sum(span_count) from requests")[
                0
            ]
            if seen != (3600, 3600) or asked != (600, 600, 3600):
                wrong.append((seen, asked))

    reader = threading.Thread(target=read)
    reader.start()
    while sealable.seal(most_spans=300) is not None:
        pass
    stop.set()
    reader.join()

    assert wrong == []
    assert sealable.rows("select count(*) > 5 from segment_rows") == [(True,)]


def test_segments_are_read_by_any_process_while_the_store_is_open(sealable: Sealable) -> None:
    sealable.ingest(*(rich(trace) for trace in range(1, 4)))
    sealable.seal()
    sealable.ingest(rich(9))
    folder = sealable.store.segments.folder

    count = duckdb.sql(
        f"select count(*), count(distinct trace_id) from '{folder}/*/spans.parquet'"  # noqa: S608
    ).fetchall()
    frame = pl.read_parquet(folder / "*" / "spans.parquet")

    assert count == [(18, 3)]
    assert frame["service"].dtype == pl.String
    assert frame.filter(pl.col("operation") == "inference")["model"].unique().to_list() == ["m"]


def test_only_what_has_been_quiet_is_sealed_and_the_oldest_first(sealable: Sealable) -> None:
    for trace in range(1, 5):
        sealable.ingest(rich(trace))
    sealable.ingest(body(SpanSpec(1, 8, parent=1)))

    assert sealable.seal(quiet_seq=4, most_spans=7) is not None

    assert sealable.rows("select distinct trace_id from span_rows order by 1") == [
        (f"{trace:032x}",) for trace in (1, 4)
    ]


class Halves:
    """Keeps the traces with an even number, for two each."""

    def decide(self, requests: pa.Table, /, *, always: frozenset[str]) -> tuple[Any, Any]:
        numbers = [int(trace, 16) for trace in requests.column("trace_id").to_pylist()]
        kept = np.array([n % 2 == 0 or f"{n:032x}" in always for n in numbers], dtype=np.bool_)
        return kept, np.where(kept, 2.0, 1.0)


class Odd:
    """Keeps the traces whose id does not begin with a 1."""

    def decide(self, requests: pa.Table, /, *, always: frozenset[str]) -> tuple[Any, Any]:
        del always
        kept = np.array([str(trace)[0] != "1" for trace in requests.column("trace_id").to_pylist()])
        return kept, np.ones(len(kept))


def test_what_is_sampled_out_goes_with_its_late_spans_and_the_rest_weighs_more(tmp_path: Path) -> None:
    with Sealable(tmp_path / "data", Halves()) as bench:
        bench.ingest(*(rich(trace) for trace in range(1, 11)))
        sealed = bench.seal()

        assert sealed is not None
        assert (sealed.traces, sealed.sampled_out_traces, sealed.sampled_out_spans) == (5, 5, 30)
        assert bench.rows("select count(*), sum(sample_weight) from requests") == [(5, 10.0)]
        assert bench.rows("select count(*), sum(sample_weight) from spans") == [(30, 60.0)]
        bench.ingest(body(SpanSpec(1, 8, parent=1)), body(SpanSpec(2, 8, parent=1)))
        assert bench.rows("select count(*) from requests") == [(5,)]
        bench.seal()
        assert bench.rows("select count(*) from spans where trace_id like '%01'") == [(0,)]
        assert bench.rows("select span_count from requests where trace_id like '%02'") == [(7,)]


def test_what_is_sampled_out_takes_no_trace_with_it_whose_id_ends_alike(tmp_path: Path) -> None:
    one, two = ((number << 64) for number in (0x1111111111111111, 0x2222222222222222))
    with Sealable(tmp_path / "data", Odd()) as bench:
        bench.ingest(body(SpanSpec(one, 1, kind=2)))
        bench.seal()
        bench.ingest(body(SpanSpec(two, 1, kind=2)))

        assert bench.rows("select trace_id from requests") == [(f"{two:032x}",)]
        bench.seal()
        assert bench.rows("select trace_id from spans") == [(f"{two:032x}",)]


def test_a_trace_of_any_size_is_settled_and_sealed_in_bounded_pieces(
    sealable: Sealable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope_collector._settle.MOST_SPANS", 50)
    monkeypatch.setattr("tailscope_collector._settle.CHUNK_SPANS", 40)
    monkeypatch.setattr(_sealing, "ROW_GROUP_SPANS", 30)
    sealable.ingest(rich(2))
    for batch in range(5):
        spans = [SpanSpec(1, 1, kind=2, name="POST /predict")] if not batch else []
        spans += [SpanSpec(1, batch * 40 + n, parent=1, start_ns=NEW_YEAR_NS + n) for n in range(2, 42)]
        sealable.ingest(body(*spans))
    before = sealable.rows("select * exclude (batch_seq) from spans order by all")
    requests = sealable.rows("select span_count, complete from requests order by trace_id")
    assert requests == [(201, False), (6, False)]

    sealed = sealable.seal()

    assert sealed is not None
    assert sealed.spans == 207
    assert sealable.rows("select * exclude (batch_seq) from spans order by all") == before
    assert sealable.rows("select span_count, complete from requests order by trace_id") == requests
    sealable.ingest(body(SpanSpec(1, 999, parent=1)))
    requests = sealable.rows("select span_count, complete from requests order by trace_id")
    assert requests == [(202, False), (6, False)], "most of it is sealed"
