"""Ray Serve for real: a local cluster of one node, replicas in processes of their own."""

from __future__ import annotations

import concurrent.futures
import os
from typing import TYPE_CHECKING, Any

import pytest

from tailscope.integrations import ray_serve as integration
from tests.instrumentation.receiver import Receiver, grpc_receiver

ray = pytest.importorskip("ray", reason="ray is what these tests trace; it is too large for every machine")
serve = pytest.importorskip("ray.serve", reason="install ray[serve]")

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")
PARENT = "00-{trace:032x}-00000000000000aa-01"
REQUESTS = 8


@pytest.fixture(scope="module")
def collected() -> Iterator[Receiver]:
    """Run a cluster whose workers record, and a receiver for all of them."""
    with grpc_receiver() as receiver:
        environment = {
            "TAILSCOPE_ENDPOINT": receiver.endpoint,
            "TAILSCOPE_SERVICE": "ranker",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={
                "env_vars": environment,
                "worker_process_setup_hook": f"{integration.__name__}.setup",
            },
        )
        try:
            serve.start(http_options={"port": 0, "host": "127.0.0.1"}, proxy_location="Disabled")
            yield receiver
        finally:
            serve.shutdown()
            ray.shutdown()


def deploy() -> Any:
    @serve.deployment(max_ongoing_requests=32, ray_actor_options={"num_cpus": 0.1})
    class Ranker:
        @serve.batch(max_batch_size=4, batch_wait_timeout_s=0.2)
        async def score(self, rows: list[int]) -> list[int]:
            import time

            time.sleep(0.05)
            if -1 in rows:
                raise ValueError("a negative row")
            return [row * 2 for row in rows]

        async def __call__(self, row: int) -> int:
            return await self.score(row)

    @serve.deployment(max_ongoing_requests=32, ray_actor_options={"num_cpus": 0.1})
    class Entry:
        def __init__(self, ranker: Any) -> None:
            self.ranker = ranker

        async def __call__(self, row: int) -> int:
            return await self.ranker.remote(row)

    return serve.run(Entry.bind(Ranker.bind()), name="app", route_prefix=None)


@pytest.fixture(scope="module")
def spans(collected: Receiver) -> list[Any]:
    """Send requests, one of them bad, and return what the replicas recorded."""
    handle = deploy()
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(lambda row: handle.remote(row).result(timeout_s=60), range(REQUESTS)))
    assert answers == [row * 2 for row in range(REQUESTS)]
    with pytest.raises(Exception, match="a negative row"):
        handle.remote(-1).result(timeout_s=60)
    expected = REQUESTS + 1
    return collected.wait_for(
        lambda all_spans: (
            len([span for span in all_spans if span.name == "inference"]) >= expected
            and len([span for span in all_spans if span.name == "Entry __call__"]) >= expected
            and len([span for span in all_spans if span.name == "Ranker __call__"]) >= expected
        ),
        "complete requests",
    )


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def test_every_request_of_a_replica_is_a_server_span_that_continues_its_callers_trace(
    spans: list[Any],
) -> None:
    entries = {span.span_id: span for span in named(spans, "Entry __call__")}
    rankers = named(spans, "Ranker __call__")

    assert len(entries) == len(rankers) == REQUESTS + 1
    assert {span.kind for span in rankers} == {"server"}
    assert {span.parent_id for span in rankers} == set(entries)
    assert all(entries[span.parent_id].trace_id == span.trace_id for span in rankers)
    assert {span.attributes["ray.serve.deployment"] for span in rankers} == {"Ranker"}


def test_every_request_of_a_batch_has_its_own_queue_and_inference(spans: list[Any]) -> None:
    rankers = {span.span_id for span in named(spans, "Ranker __call__")}

    assert {span.parent_id for span in named(spans, "queue")} == rankers
    assert {span.parent_id for span in named(spans, "inference")} == rankers
    assert all(span.duration_ms >= 45 for span in named(spans, "inference"))


def test_a_batch_links_to_all_its_requests_and_tells_its_limits(spans: list[Any]) -> None:
    batches = named(spans, "batch")
    linked = [link[1] for span in batches for link in span.links]

    assert sorted(linked) == sorted(span.span_id for span in named(spans, "Ranker __call__"))
    assert max(span.attributes["batch.size"] for span in batches) > 1
    assert {span.attributes["batch.max_size"] for span in batches} == {4}
    assert {span.attributes["batch.max_delay_ms"] for span in batches} == {200.0}


def test_a_batch_that_fails_marks_each_of_its_requests(spans: list[Any]) -> None:
    failed = [span for span in spans if span.status[0] == 2]

    assert {"batch", "inference", "Ranker __call__", "Entry __call__"} <= {span.name for span in failed}
    (inference,) = named(failed, "inference")
    assert "ValueError" in inference.attributes["error.type"]
