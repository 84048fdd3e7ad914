"""`/api/compare` and `/api/load`: what is asked is what is compared, and how much of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest

from tailscope_analyzer import Selection, connect
from tailscope_collector import Collector
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, body
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
SECOND = 10**9
REQUESTS = 240


def request_of(number: int) -> tuple[SpanSpec, SpanSpec]:
    """Return a request a second: of version 2, the later half, inference takes 30 ms instead of 10."""
    version, wait = ("2", 30) if number >= REQUESTS // 2 else ("1", 10)
    start, extra = NEW_YEAR_NS + number * SECOND, (number * 7 % 10) * MS // 10
    entry = SpanSpec(
        trace=number + 1, kind=2, name="POST /predict", start_ns=start, duration_ns=(wait + 5) * MS + extra,
        attributes={"model.version": version, "service.name": "svc"},
    )  # fmt: skip
    stage = SpanSpec(
        trace=number + 1, span=2, parent=1, name="inference", start_ns=start + 2 * MS,
        duration_ns=wait * MS + extra, attributes={"tailscope.stage": "inference"},
    )  # fmt: skip
    return entry, stage


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("analyses") / "data") as made:
        spans = [spec for number in range(REQUESTS) for spec in request_of(number)]
        post_protobuf(made.url, body(*spans))
        yield made


def versions(**more: str) -> str:
    sides = {"baseline_where": "version = '1'", "candidate_where": "version = '2'"}
    return urlencode(sides | more)


def test_two_versions_are_compared_as_by_the_command(filled: Collector) -> None:
    found = call(f"{filled.url}/api/compare?{versions(service='svc')}").json

    assert (found["baseline"]["requests"], found["candidate"]["requests"]) == (120, 120)
    assert found["significant"]
    assert found["excess_ms"] == pytest.approx(20.0, abs=1e-6)
    assert (found["stages"][0]["stage"], found["percentile"]) == ("inference", 0.99)
    assert not [note for note in found["notes"] if "stretches" in note]


def test_two_windows_and_a_condition_of_both_are_compared(filled: Collector) -> None:
    middle = (NEW_YEAR + timedelta(seconds=REQUESTS // 2)).isoformat()
    asked = {
        "where": "duration_ms > 15",
        "baseline_until": middle,
        "candidate_since": middle,
        "percentile": "95",
    }

    found = call(f"{filled.url}/api/compare?{urlencode(asked)}").json

    # Of the earlier half, those that took exactly 15 ms are left out.
    assert (found["baseline"]["requests"], found["candidate"]["requests"]) == (108, 120)
    assert found["percentile"] == 0.95


def test_the_client_gives_the_comparison_as_values(filled: Collector) -> None:
    sides = [Selection(where=f"version = '{version}' -- mine") for version in "12"]

    with connect(filled.url) as client:
        found = client.compare(*sides, percentile=0.95, most=1000)

    assert found.percentile == 0.95
    assert found.services[0].service == "svc"
    assert found.services[0].significant


def test_of_too_many_requests_stretches_stand_for_all(filled: Collector) -> None:
    found = call(f"{filled.url}/api/compare?{versions(most='30')}").json

    assert found["baseline"]["requests"] == pytest.approx(120, abs=2)
    assert found["excess_ms"] == pytest.approx(20.0, abs=0.5)
    assert [note for note in found["notes"] if note.startswith("Of the 120 stored requests of the candidate")]


def test_requests_that_begin_together_are_thinned_by_their_ids(collector: Collector) -> None:
    together = [
        SpanSpec(trace=number + 1, kind=2, attributes={"model.version": str(1 + number % 2)})
        for number in range(400)
    ]
    post_protobuf(collector.url, body(*together))

    found = call(f"{collector.url}/api/compare?{versions(most='20')}").json

    assert 0 < found["baseline"]["requests"] < 400
    assert "of the baseline" in found["notes"][-2]


def test_a_side_without_requests_is_an_answer(filled: Collector) -> None:
    asked = {"baseline_where": "version = '1'", "candidate_where": "version = '3'"}

    found = call(f"{filled.url}/api/compare?{urlencode(asked)}").json

    assert found["candidate"]["requests"] == 0
    assert found["verdict"].startswith("Nothing to compare: the candidate")


@pytest.mark.parametrize(
    ("parameters", "code", "said"),
    [
        ("service=svc", "bad_query", "Both sides are the same requests"),
        ("baseline_version=1", "bad_query", "No such parameter: baseline_version"),
        ("candidate_where=no_such", "bad_query", "no_such"),
        ("candidate_where=true&percentile=40", "bad_request", "Not a percentile with a tail"),
        ("candidate_since=yesterday", "bad_request", "Not a time"),
        ("candidate_where=true&most=0", "bad_query", "most is 0; it lies between 1 and 200,000"),
        ("candidate_where=true&most=1e9", "bad_query", "most is '1e9'"),
        ("candidate_where=1=1)%20or%20(1=1&nothing=1", "bad_query", "No such parameter: nothing"),
    ],
)
def test_what_cannot_be_compared_says_why(filled: Collector, parameters: str, code: str, said: str) -> None:
    answer = call(f"{filled.url}/api/compare?{parameters}")

    assert (answer.status, answer.json["error"]["code"]) == (400, code)
    assert said in answer.json["error"]["message"]


def test_a_load_curve_is_that_of_the_newest(filled: Collector) -> None:
    whole = call(f"{filled.url}/api/load").json
    newest = call(f"{filled.url}/api/load?most=100&service=svc").json

    assert (whole["selected"], whole["requests"], whole["start_unix_nano"]) == (
        REQUESTS,
        REQUESTS,
        NEW_YEAR_NS,
    )
    assert (newest["selected"], newest["requests"]) == (REQUESTS, 100)
    assert newest["start_unix_nano"] == NEW_YEAR_NS + 140 * SECOND
    assert newest["little"]["mean_ms"] == pytest.approx(35.45, abs=1e-6)
    with connect(filled.url) as client:
        assert client.load(Selection(service="svc"), most=100) == newest


def test_a_load_curve_of_nothing_says_so_and_has_no_percentile(filled: Collector) -> None:
    nothing = call(f"{filled.url}/api/load?service=nope").json
    refused = call(f"{filled.url}/api/load?percentile=99")

    assert (nothing["requests"], nothing["verdict"], nothing["start_unix_nano"]) == (
        0,
        "No requests match.",
        None,
    )
    assert refused.status == 400
