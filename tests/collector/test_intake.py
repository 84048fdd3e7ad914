"""The queue, the two threads, and what happens when a commit fails."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from tailscope_collector import Settings
from tailscope_collector._intake import Intake, Outcome
from tailscope_collector.errors import (
    MalformedRequestError,
    OverloadedError,
    StoreUnavailableError,
)
from tests.collector.building import Bench, SpanSpec, body
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope_collector import Collector

DEADLINE_S = 30


class Answers:
    """Collects outcomes, and waits for them."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self._change = threading.Condition()

    def expect(self, number: int) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            with self._change:
                assert number not in self.outcomes, "answered twice"
                self.outcomes[number] = outcome
                self._change.notify_all()

        return done

    def wait(self, count: int) -> dict[int, Outcome]:
        with self._change:
            arrived = self._change.wait_for(lambda: len(self.outcomes) >= count, timeout=DEADLINE_S)
        assert arrived, f"only {len(self.outcomes)} of {count} answers came"
        return self.outcomes


@pytest.fixture
def intake(bench: Bench) -> Iterator[Intake]:
    made = Intake(bench.decode, bench.reader, bench.committer, bench.counters, Settings(queue_mb=1))
    yield made
    made.close()


def test_closing_commits_and_answers_everything_that_was_taken(intake: Intake, bench: Bench) -> None:
    answers = Answers()
    for number in range(1, 201):
        intake.submit(body(SpanSpec(span=number)), answers.expect(number))
    intake.start()
    intake.close()

    assert len(answers.outcomes) == 200
    assert {outcome.error for outcome in answers.outcomes.values()} == {None}
    assert bench.rows("select count(*) from spans") == [(200,)]
    with pytest.raises(StoreUnavailableError, match="stopping"):
        intake.submit(b"", answers.expect(0))


def test_many_requests_share_a_commit(intake: Intake, bench: Bench) -> None:
    answers = Answers()
    for number in range(1, 101):
        intake.submit(body(SpanSpec(span=number)), answers.expect(number))
    intake.start()
    answers.wait(100)

    assert bench.rows("select count(distinct batch_seq) < 5 from spans") == [(True,)]


def test_the_bound_counts_bytes_until_they_are_answered(intake: Intake) -> None:
    answers = Answers()
    filler = b"\x7a\xc0\xcf\x24" + bytes(600_000)
    intake.submit(filler, answers.expect(1))

    with pytest.raises(OverloadedError, match=r"holds 600004 of 1048576 bytes"):
        intake.submit(filler, answers.expect(2))

    intake.start()
    answers.wait(1)
    intake.submit(filler, answers.expect(3))
    answers.wait(2)
    assert intake.held_bytes == 0


def test_a_request_larger_than_the_bound_passes_an_empty_queue(intake: Intake) -> None:
    answers = Answers()
    intake.start()
    intake.submit(b"\x7a\x80\x89\x7a" + bytes(2_000_000), answers.expect(1))

    assert answers.wait(1)[1].error is None


@pytest.mark.parametrize("failure", [duckdb.IOException("no space left"), ValueError("no space left")])
def test_a_failed_commit_is_said_and_a_retry_is_stored_once(
    intake: Intake, bench: Bench, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    answers = Answers()
    insert = bench.committer._insert
    failures = iter([failure])

    def failing(*arguments: Any, **parameters: Any) -> None:
        for failure in failures:
            raise failure
        insert(*arguments, **parameters)

    monkeypatch.setattr(bench.committer, "_insert", failing)
    intake.start()
    intake.submit(body(SpanSpec(span=1)), answers.expect(1))
    first = answers.wait(1)[1]
    intake.submit(body(SpanSpec(span=1)), answers.expect(2))
    second = answers.wait(2)[2]

    assert isinstance(first.error, StoreUnavailableError)
    assert "no space left" in str(first.error)
    assert second.error is None
    # The origin was first named by the batch that failed; the view would miss the span without it.
    assert bench.rows("select service from spans") == [("svc",)]
    assert bench.counters.value("commits_failed_total") == 1


def test_a_sender_that_cannot_be_answered_costs_the_next_one_nothing(intake: Intake) -> None:
    answers = Answers()

    def gone(outcome: Outcome) -> None:
        raise RuntimeError(f"the connection is gone: {outcome}")

    intake.submit(body(SpanSpec(span=1)), gone)
    intake.submit(body(SpanSpec(span=2)), answers.expect(2))
    intake.start()

    assert answers.wait(1)[2].error is None


def test_a_commit_that_breaks_in_the_middle_stores_nothing_and_keeps_its_origins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailscope_collector import _sql

    query = _sql.query
    broken = {"insert_spans": "insert nothing"}
    monkeypatch.setattr(_sql, "query", lambda name: broken.get(name) or query(name))
    with pytest.raises(duckdb.Error):
        bench.ingest(body(SpanSpec(span=1)))
    monkeypatch.undo()

    assert bench.rows("select count(*) from spans") == [(0,)]
    assert bench.ingest(body(SpanSpec(span=1))) == 0
    assert bench.rows("select service, batch_seq from spans") == [("svc", 1)]


def test_an_input_that_breaks_the_reader_is_refused_alone(
    intake: Intake, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tailscope_collector._span_table import SpanReader

    read = SpanReader.read

    def fragile(self: SpanReader, batch: Any) -> Any:
        if "poison" in str(batch.to_pydict()):
            raise RuntimeError("unforeseen")
        return read(self, batch)

    monkeypatch.setattr(SpanReader, "read", fragile)
    answers = Answers()
    for number, name in ((1, "fine"), (2, "poison"), (3, "fine too")):
        intake.submit(body(SpanSpec(span=number, name=name, service=name)), answers.expect(number))
    intake.start()
    outcomes = answers.wait(3)

    assert isinstance(outcomes[2].error, MalformedRequestError)
    assert (outcomes[1].error, outcomes[3].error) == (None, None)
    assert bench.rows("select service from spans order by 1") == [("fine",), ("fine too",)]
    assert "could not be read" in caplog.text


def test_a_database_that_failed_for_good_is_not_healthy(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise duckdb.FatalException("database has been invalidated")

    monkeypatch.setattr(collector.intake.committer, "_insert", broken)
    before = call(f"{collector.url}/healthz").status, call(f"{collector.url}/readyz").status

    answer = post_protobuf(collector.url, body(SpanSpec()))

    assert before == (200, 200)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert call(f"{collector.url}/healthz").status == 503
    assert call(f"{collector.url}/readyz").status == 503
    assert "were not committed" in caplog.text


def test_decoding_runs_ahead_of_the_commits_by_a_bounded_number_of_bytes(
    intake: Intake, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tailscope_collector import _intake

    monkeypatch.setattr(_intake, "AHEAD_BYTES", 1)
    monkeypatch.setattr(_intake, "CHUNK_BYTES", 1)
    gate = threading.Event()
    commit = bench.committer.commit

    def held(*arguments: Any) -> int:
        assert gate.wait(DEADLINE_S)
        return commit(*arguments)

    monkeypatch.setattr(type(bench.committer), "commit", lambda _self, batches: held(batches))
    answers = Answers()
    intake.start()
    for number in range(1, 21):
        intake.submit(body(SpanSpec(span=number)), answers.expect(number))
    # One is with the writer, one waits for it, one is decoded and waits to be put down.
    deadline = time.monotonic() + DEADLINE_S
    while len(intake._waiting) != 17:
        assert time.monotonic() < deadline, f"{len(intake._waiting)} are not decoded yet"
        time.sleep(0.01)
    time.sleep(0.2)
    assert len(intake._waiting) == 17

    gate.set()

    assert {outcome.error for outcome in answers.wait(20).values()} == {None}
    assert bench.rows("select count(*) from spans") == [(20,)]
