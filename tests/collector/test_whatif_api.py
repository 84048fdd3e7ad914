"""Predictions over HTTP: what may change, of which requests, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tailscope_analyzer import Selection, connect
from tailscope_collector import Collector
from tests.collector.building import MS, SpanSpec, body
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUESTS = 40


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    folder: Path = tmp_path_factory.mktemp("whatif")
    with Collector(folder / "data") as made:
        spans: list[SpanSpec] = []
        for trace in range(1, REQUESTS + 1):
            start = trace * 1_000 * MS
            spans += [
                SpanSpec(trace=trace, kind=2, name="POST /predict", start_ns=start, duration_ns=10 * MS),
                SpanSpec(
                    trace=trace, span=2, parent=1, name="inference", start_ns=start + MS, duration_ns=8 * MS
                ),
            ]
        post_protobuf(made.url, body(*spans))
        yield made


def ask(collector: Collector, *pairs: tuple[str, str]) -> Any:
    answer = call(f"{collector.url}/api/whatif?{urlencode(pairs)}")
    assert answer.status == 200, answer.body
    return answer.json


def test_halved_stage_takes_half_of_its_time_off(filled: Collector) -> None:
    found = ask(filled, ("stage", "inference=0.5"))

    assert (found["selected"], found["requests"]) == (REQUESTS, REQUESTS)
    assert found["p50_ms"] == 10.0
    assert [(row["change"], row["p50_ms"]) for row in found["rows"]] == [("inference=0.5", 6.0)]


def test_several_changes_are_predicted_alone_and_together(filled: Collector) -> None:
    found = ask(filled, ("stage", "inference=0"), ("stage", "other=0.5"))

    assert [row["p50_ms"] for row in found["rows"]] == [2.0, 9.0, 1.0]


def test_prediction_is_of_the_newest_requests(filled: Collector) -> None:
    found = ask(filled, ("stage", "inference=0.5"), ("most", "10"))

    assert (found["selected"], found["requests"]) == (REQUESTS, 10)


def test_client_asks_for_a_prediction(filled: Collector) -> None:
    with connect(filled.url) as client:
        found = client.whatif(Selection(service="svc"), [("stage", "inference=0.25")], most=20)

    assert found["rows"][0]["change"] == "inference=0.25"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "Nothing"),
        ([("stage", "inference")], "Not a change"),
        ([("stage", "nowhere=0.5")], "Nothing here is called 'nowhere'"),
        ([("replicas", "many")], "replicas is 'many'; it is a whole number"),
        ([("cache_hit_rate", "x")], "cache_hit_rate is 'x'; it is a number"),
        ([("stage", "inference=0.5"), ("percentile", "95")], "leave percentile out"),
        ([("stage", "inference=0.5"), ("most", "0")], "most is 0"),
        ([("stage", "inference=0.5")] * 13, "13 kinds of time change"),
        ([("stages", "inference=0.5")], "No such parameter: stages"),
    ],
)
def test_question_that_cannot_be_answered_says_why(
    filled: Collector, pairs: list[tuple[str, str]], message: str
) -> None:
    answer = call(f"{filled.url}/api/whatif?{urlencode(pairs)}")

    assert answer.status == 400
    assert message in answer.json["error"]["message"]
