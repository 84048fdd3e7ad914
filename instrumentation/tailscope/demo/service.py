"""The ranker: a real inference service that scores documents for a query, traced by `import tailscope` alone.

Owns the request's path: auth, preprocess, queue, inference, postprocess, serialize. Its command line says how
slow an instance is made; every option makes it do more work or wait longer, none of them touches a span.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypedDict

import httpx
from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from opentelemetry import propagate

import tailscope
from tailscope.demo import _listen
from tailscope.demo._arrivals import DOCUMENTS_MEDIAN
from tailscope.demo._batcher import Batcher
from tailscope.demo._memory import HeapKeeper
from tailscope.demo._model import MODEL_VERSION, Ranker
from tailscope.demo._text import Corpus, best_documents, model_input, tokenise
from tailscope.demo._wire import (
    ACCOUNTS_PORT,
    BULK_LANE,
    ONLINE_LANE,
    RANKER,
    RANKER_PORT,
    Calibration,
    RankRequest,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncGenerator, Sequence

    import numpy as np
    from numpy.typing import NDArray

MAX_BATCH = 8
ONLINE_WINDOW_MS = 4.0
SNIPPET_CHARACTERS = 80
CALIBRATION_DOCUMENTS = 400
CALIBRATION_ROUNDS = 3


class Result(TypedDict):
    """One document of the answer; `score` is null for those that only the lexical filter saw."""

    index: int
    score: float | None
    snippet: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that is ready for the model."""

    request: RankRequest
    chosen: list[int]
    tokens: NDArray[np.int64]


class RankerService:
    """What one instance holds, and the steps of a request."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.ranker = Ranker(seed=options.seed, passes=options.passes)
        self.heap = HeapKeeper(entries=options.heap, every=options.collect_every)
        self._accounts = httpx.Client(base_url=options.accounts, timeout=10)
        self._lanes = {
            ONLINE_LANE: Batcher(
                self.ranker.score, name=ONLINE_LANE, max_size=MAX_BATCH, max_delay_ms=ONLINE_WINDOW_MS
            ),
            BULK_LANE: Batcher(
                self.ranker.score, name=BULK_LANE, max_size=MAX_BATCH, max_delay_ms=options.bulk_window_ms
            ),
        }

    def rank(self, body: bytes, key: str) -> bytes:
        """Answer one request: JSON in, gzipped JSON out."""
        with tailscope.request("rank", attributes={"http.request.body.size": len(body)}) as request:
            tenant = self.authenticate(key)
            request.set("tenant", tenant)
            prepared = preprocess(body)
            request.set("lane", prepared.request["lane"])
            scores = self.lane(prepared.request["lane"]).score(prepared.tokens)
            results = postprocess(prepared, scores.tolist())
            self.heap.tick()
            return serialize(results, tenant=tenant)

    def lane(self, name: str) -> Batcher:
        """Return the batcher of a lane."""
        if name not in self._lanes:
            raise HTTPException(400, f"no such lane: {name}; use one of {', '.join(self._lanes)}")
        return self._lanes[name]

    @tailscope.stage("auth")
    def authenticate(self, key: str) -> str:
        """Return the tenant of an account, as the accounts service knows it."""
        headers: dict[str, str] = {}
        with tailscope.dependency("GET /accounts/{key}", peer="accounts"):
            propagate.inject(headers)
            answer = self._accounts.get(f"/accounts/{key}", headers=headers)
        if not answer.is_success:
            raise HTTPException(401, f"unknown account: {key}")
        return str(answer.json()["tenant"])


@tailscope.stage("preprocess")
def preprocess(body: bytes) -> Prepared:
    """Parse, tokenise, and keep the documents that are worth the model's time."""
    request: RankRequest = json.loads(body)
    query = tokenise(request["query"])
    documents = [tokenise(document) for document in request["documents"]]
    chosen = best_documents(query, documents)
    return Prepared(request, chosen, model_input(query, [documents[i] for i in chosen]))


@tailscope.stage("postprocess")
def postprocess(prepared: Prepared, scores: Sequence[float]) -> list[Result]:
    """Order the scored documents by score and append the rest."""
    texts = prepared.request["documents"]
    ranked = sorted(zip(scores, prepared.chosen, strict=False), reverse=True)
    scored = set(prepared.chosen)
    results = [Result(index=i, score=score, snippet=texts[i][:SNIPPET_CHARACTERS]) for score, i in ranked]
    results += [
        Result(index=i, score=None, snippet=text[:SNIPPET_CHARACTERS])
        for i, text in enumerate(texts)
        if i not in scored
    ]
    return results


@tailscope.stage("serialize")
def serialize(results: list[Result], *, tenant: str) -> bytes:
    """Return the answer as gzipped JSON."""
    return gzip.compress(
        json.dumps({"tenant": tenant, "model": MODEL_VERSION, "results": results}).encode(), 6
    )


async def raw_body(request: Request) -> bytes:
    """Return the body unparsed: parsing belongs to `preprocess`, and off the event loop."""
    return await request.body()


def create_app(service: RankerService, seed: int) -> FastAPI:
    """Return the HTTP face of the service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        tailscope.shutdown()

    app = FastAPI(lifespan=lifespan)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/calibration")
    def calibration() -> Response:
        return JSONResponse(calibrate(service, seed))

    @app.post("/v1/rank")
    def rank(body: Annotated[bytes, Depends(raw_body)], x_account: Annotated[str, Header()]) -> Response:
        answer = service.rank(body, x_account)
        return Response(answer, media_type="application/json", headers={"content-encoding": "gzip"})

    # The decorator hands each function to FastAPI; naming them here tells type checkers that they are used.
    _ = (healthz, calibration, rank)
    return app


def calibrate(service: RankerService, seed: int) -> Calibration:
    """Measure what the parts of a fault cost here and now, in milliseconds; ask when nothing else runs."""
    documents = Corpus(seed).documents(CALIBRATION_DOCUMENTS)
    request: RankRequest = {"query": documents[0], "documents": documents, "lane": ONLINE_LANE}
    body = json.dumps(request).encode()
    costs = [measure_once(service, body) for _ in range(CALIBRATION_ROUNDS)]
    return {
        "document_ms": min(cost["document_ms"] for cost in costs),
        "inference_ms": min(cost["inference_ms"] for cost in costs),
        "gc_pause_ms": min(cost["gc_pause_ms"] for cost in costs),
    }


def measure_once(service: RankerService, body: bytes) -> Calibration:
    """Take one request's way without its waits, and one garbage collection."""
    start = time.perf_counter()
    prepared = preprocess(body)
    parsed = time.perf_counter()
    scores = service.ranker.score(prepared.tokens[:DOCUMENTS_MEDIAN])
    scored = time.perf_counter()
    results = postprocess(prepared, scores.tolist())
    ordered = time.perf_counter()
    serialize(results, tenant="calibration")
    end = time.perf_counter()
    return {
        "document_ms": (parsed - start + end - ordered) * 1e3 / CALIBRATION_DOCUMENTS,
        "inference_ms": (scored - parsed) * 1e3,
        "gc_pause_ms": service.heap.pause_ms(),
    }


def main(argv: list[str]) -> int:
    """Run one instance of the ranker until it is told to stop."""
    parser = _listen.parser("service", "The inference service of the demo.", port=RANKER_PORT)
    parser.add_argument("--accounts", default=f"http://127.0.0.1:{ACCOUNTS_PORT}", metavar="URL")
    parser.add_argument("--passes", type=int, default=1, help="run the model this often for each batch")
    parser.add_argument(
        "--bulk-window-ms", type=float, default=ONLINE_WINDOW_MS, help="batch window of lane 'bulk'"
    )
    parser.add_argument("--heap", type=int, default=0, help="cached entries kept on the heap")
    parser.add_argument(
        "--collect-every", type=int, default=0, help="call gc.collect() every so many requests"
    )
    options = parser.parse_args(argv)
    service = RankerService(options)
    calibrate(service, options.seed)  # so that the first requests do not pay for lazy imports and cold caches
    tailscope.init(
        service=RANKER,
        endpoint=options.collector,
        resource_attributes={"service.instance.id": options.instance, "service.version": MODEL_VERSION},
    )
    _listen.run(create_app(service, options.seed), options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
