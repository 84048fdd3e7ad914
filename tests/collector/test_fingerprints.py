"""Finding spans that were sent twice, without an index."""

from __future__ import annotations

import numpy as np
import pytest

from tailscope_collector._fingerprints import WAYS, FingerprintCache, fingerprints, repeats_within
from tests.collector.building import Bench, SpanSpec, body


def prints_of(count: int, seed: int = 1) -> np.ndarray:  # type: ignore[type-arg]
    rand = np.random.default_rng(seed)
    return rand.integers(0, 2**64, count, dtype=np.uint64)


def test_each_part_of_the_identity_changes_the_fingerprint() -> None:
    trace, span = bytes(range(16)), bytes(range(8))
    variants = [
        (trace, span, 1, 7),
        (bytes([99, *trace[1:]]), span, 1, 7),
        (bytes([*trace[:15], 99]), span, 1, 7),
        (trace, bytes([*span[:7], 99]), 1, 7),
        (trace, span, 2, 7),
        (trace, span, 1, 8),
    ]

    made = {
        int(
            fingerprints(
                np.frombuffer(t, np.uint8),
                np.frombuffer(s, np.uint8),
                np.array([k], np.int8),
                np.array([start]),
            )[0]
        )
        for t, s, k, start in variants
    }

    assert len(made) == len(variants)


def test_fingerprints_of_a_million_counting_ids_do_not_collide() -> None:
    count = 1_000_000
    ids = np.zeros((count, 16), dtype=np.uint8)
    ids[:, 8:] = np.arange(count, dtype=">u8").view(np.uint8).reshape(-1, 8)

    prints = fingerprints(
        ids.ravel(),
        np.ascontiguousarray(ids[:, 8:]).ravel(),
        np.zeros(count, np.int8),
        np.zeros(count, np.int64),
    )

    assert len(np.unique(prints)) == count


def test_what_was_seen_is_suspect_and_what_was_not_is_not() -> None:
    cache = FingerprintCache(slots=1 << 16)

    assert len(cache.suspects(prints_of(100))) == 0
    assert cache.suspects(prints_of(100)).tolist() == list(range(100))
    assert len(cache.suspects(prints_of(100, seed=2))) == 0


@pytest.mark.parametrize("batch", [1_000, 100_000, 1_000_000])
def test_spans_that_fall_on_one_place_do_not_forget_each_other(batch: int) -> None:
    """Of a million spans, 30,000 pairs share one of 16 M places; with one slot a place half would be lost."""
    cache = FingerprintCache()
    prints = prints_of(1_000_000)
    for first in range(0, len(prints), batch):
        assert len(cache.suspects(prints[first : first + batch])) == 0

    assert len(cache.suspects(prints)) == len(prints)


def test_a_full_place_forgets_its_oldest() -> None:
    cache = FingerprintCache(slots=WAYS)
    first, *others = prints_of(WAYS + 1)
    for print_ in (first, *others):
        cache.remember(np.array([print_]))

    assert len(cache.suspects(np.array(others))) == WAYS
    assert len(cache.suspects(np.array([first]))) == 0


def test_the_number_of_slots_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        FingerprintCache(slots=1000)


def test_repeats_are_the_later_of_equal_rows() -> None:
    assert repeats_within(np.array([5, 7, 5, 9, 7, 5], dtype=np.uint64)).tolist() == [2, 4, 5]


def test_a_request_sent_twice_is_stored_once(bench: Bench) -> None:
    sent = body(SpanSpec(span=1), SpanSpec(span=2))

    assert bench.ingest(sent) == 0
    assert bench.ingest(sent) == 2
    assert bench.ingest(sent, sent, body(SpanSpec(span=3))) == 4
    assert bench.rows("select count(*), count(distinct span_id) from spans") == [(3, 3)]


def test_a_retry_across_a_restart_is_stored_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("restart") / "data"
    with Bench(data) as first:
        first.ingest(body(SpanSpec(span=1)))

    with Bench(data) as second:
        duplicates = second.ingest(body(SpanSpec(span=1), SpanSpec(span=2)))

        assert duplicates == 1
        assert second.rows("select count(*) from spans") == [(2,)]


def test_spans_that_share_an_id_but_not_kind_or_start_are_all_kept(bench: Bench) -> None:
    bench.ingest(body(SpanSpec(kind=3), SpanSpec(kind=2), SpanSpec(kind=2, start_ns=5)))

    assert bench.rows("select count(*) from spans") == [(3,)]


def test_a_false_suspicion_costs_no_span(bench: Bench) -> None:
    batch = bench.read(body(SpanSpec(span=1)))
    bench.committer._cache.remember(batch.prints)

    assert bench.committer.commit([batch]) == 0
    assert bench.rows("select count(*) from spans") == [(1,)]
