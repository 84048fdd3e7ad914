"""The demo's services in this process: their work is real, and they batch, wait and collect as told."""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest

from tailscope.demo import accounts
from tailscope.demo._batcher import Batcher
from tailscope.demo._memory import HeapKeeper
from tailscope.demo._model import Ranker, build_model
from tailscope.demo._text import Corpus, model_input, tokenise
from tailscope.demo.service import Prepared, RankerService, postprocess, preprocess, serialize

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONE_ROW = np.zeros((1, 64), dtype=np.int64)


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return Ranker(seed=1)


def test_the_model_is_the_same_for_the_same_seed() -> None:
    assert build_model(1) == build_model(1)
    assert build_model(1) != build_model(2)


def test_scores_are_probabilities_and_depend_on_the_document(ranker: Ranker) -> None:
    rows = model_input([1, 2], [tokenise(text) for text in Corpus(3).documents(20)])

    scores = ranker.score(rows)

    assert scores.shape == (20,)
    assert ((scores > 0) & (scores < 1)).all()
    assert len(set(scores.tolist())) == 20


def test_a_row_scores_the_same_alone_and_in_a_batch(ranker: Ranker) -> None:
    rows = model_input([1, 2], [tokenise(text) for text in Corpus(3).documents(8)])

    together = ranker.score(rows)

    assert np.allclose(together, [ranker.score(rows[i : i + 1])[0] for i in range(8)], atol=1e-6)


def test_more_passes_are_more_work_and_the_same_answer(ranker: Ranker) -> None:
    many = Ranker(seed=1, passes=3)

    assert np.allclose(many.score(ONE_ROW), ranker.score(ONE_ROW))


def test_a_request_goes_through_the_pure_steps() -> None:
    documents = ["alpha beta", "gamma", "alpha alpha delta"]
    body = json.dumps({"query": "alpha", "documents": documents, "lane": "online"}).encode()

    prepared = preprocess(body)
    results = postprocess(prepared, [0.2, 0.9, 0.1])
    answer = json.loads(gzip.decompress(serialize(results, tenant="tenant-1")))

    assert prepared.chosen == [0, 2, 1]
    assert prepared.tokens.shape == (3, 64)
    assert [(result["index"], result["score"]) for result in answer["results"]] == [
        (2, 0.9),
        (0, 0.2),
        (1, 0.1),
    ]
    assert answer["tenant"] == "tenant-1"


def test_documents_beyond_the_models_limit_are_answered_without_a_score() -> None:
    documents = [f"word{i}" for i in range(40)]
    prepared = preprocess(json.dumps({"query": "x", "documents": documents, "lane": "online"}).encode())

    results = postprocess(prepared, [0.5] * len(prepared.chosen))

    assert len(results) == 40
    assert [result["score"] for result in results[32:]] == [None] * 8
    assert {result["index"] for result in results} == set(range(40))


def count_rows(tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """Stand in for a model: the score of each row is the size of the batch it was in."""
    return np.full(len(tokens), len(tokens), dtype=np.float32)


def test_requests_that_come_together_share_a_batch() -> None:
    batcher = Batcher(count_rows, name="test", max_size=4, max_delay_ms=5_000)

    with ThreadPoolExecutor(4) as pool:
        scores = [result.tolist() for result in pool.map(batcher.score, [ONE_ROW] * 4)]

    assert scores == [[4.0]] * 4


def test_a_lonely_request_waits_for_the_window_and_no_longer() -> None:
    batcher = Batcher(count_rows, name="test", max_size=4, max_delay_ms=1)

    assert batcher.score(np.zeros((3, 64), dtype=np.int64)).tolist() == [3.0, 3.0, 3.0]


def test_each_request_of_a_batch_gets_its_own_rows() -> None:
    def first_token(tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        return tokens[:, 0].astype(np.float32)

    batcher = Batcher(first_token, name="test", max_size=3, max_delay_ms=5_000)
    inputs = [np.full((rows, 64), rows, dtype=np.int64) for rows in (1, 2, 3)]

    with ThreadPoolExecutor(3) as pool:
        scores = [result.tolist() for result in pool.map(batcher.score, inputs)]

    assert scores == [[1.0], [2.0, 2.0], [3.0, 3.0, 3.0]]


def test_a_failing_model_fails_its_batch_and_not_the_next() -> None:
    broken = threading.Event()
    broken.set()

    def score(tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        if broken.is_set():
            raise RuntimeError("weights are gone")
        return count_rows(tokens)

    batcher = Batcher(score, name="test", max_size=1, max_delay_ms=0)

    with pytest.raises(RuntimeError, match="weights are gone"):
        batcher.score(ONE_ROW)
    broken.clear()

    assert batcher.score(ONE_ROW).tolist() == [1.0]


def test_every_nth_request_collects_garbage() -> None:
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            collected.append(1)

    keeper = HeapKeeper(entries=1000, every=3)
    gc.collect()
    gc.callbacks.append(note)
    try:
        for _ in range(9):
            keeper.tick()
    finally:
        gc.callbacks.remove(note)

    assert len(keeper) == 1000
    assert len(collected) == 3
    assert keeper.pause_ms() > 0


def test_a_heap_that_is_never_collected_by_hand_costs_no_pause() -> None:
    assert HeapKeeper(entries=0, every=0).pause_ms() == 0.0


def ask_accounts(*keys: str) -> list[httpx.Response]:
    """Return what the accounts service answers, asked in this process."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(accounts.create_app(seed=1))
        async with httpx.AsyncClient(transport=transport, base_url="http://accounts") as client:
            return [await client.get(f"/accounts/{key}") for key in keys]

    return asyncio.run(ask())


def test_near_and_far_accounts_are_known_and_no_others() -> None:
    near, far, nobody = ask_accounts("near-3", "far-3", "nobody")

    assert near.json() == {"tenant": "tenant-3"}
    assert far.json() == {"tenant": "harbour"}
    assert nobody.status_code == 404


def test_far_accounts_wait_and_near_ones_do_not() -> None:
    database = accounts.open_accounts(seed=1)

    waits = dict(database.execute("select key, replica_ms from accounts").fetchall())

    far = [wait for key, wait in waits.items() if key.startswith("far-")]
    assert {wait for key, wait in waits.items() if key.startswith("near-")} == {0.0}
    assert 80 <= min(far) < max(far) <= 800
    database.close()


def test_an_unknown_lane_is_refused_with_those_that_exist() -> None:
    options = argparse.Namespace(
        seed=1, passes=1, heap=0, collect_every=0, accounts="http://127.0.0.1:1", bulk_window_ms=4.0
    )
    service = RankerService(options)

    with pytest.raises(Exception, match="no such lane: express; use one of online, bulk"):
        service.lane("express")


def test_a_prepared_request_is_a_value() -> None:
    prepared = Prepared({"query": "", "documents": [], "lane": "online"}, [], ONE_ROW)

    with pytest.raises(AttributeError):
        prepared.chosen = [1]  # type: ignore[misc] # the point of the test
