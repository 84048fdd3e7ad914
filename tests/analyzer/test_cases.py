"""The real mysteries: percentiles as measured, an exact split, and a headline that points the right way."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import polars as pl
import pytest

from tailscope_analyzer import Report, Traces, headline, report
from tests.analyzer.build import otlp_table
from tests.shared import shared_file

STANDS_OUT = {
    "A01": "garbage collection in infer-api, across its stages",
    "A03": "the gap between queue-proxy and infer-api",
    "A05": "is infer-api inference",
    "A06": "is infer-api inference",
    "A08": "is infer-api inference",
    "A09": "is infer-api inference",
    "A10": "waiting in the queue of infer-api",
    "A11": "waiting in the queue of infer-api",
    "A13": "waiting in the queue of infer-api",
    "A16": "time inside infer-api that no stage covers",
    "A18": "is infer-api preprocess",
    "A22": "is infer-api inference",
    "A24": "the gap between gateway and infer-api",
    "A30": "is infer-api inference",
}
"""What the headline must say of the largest part. Causes are named by other means, in a later step."""


def expected() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shared_file("cases/latency/expected.json").read_text())
    return found


@cache
def traces(case: str) -> Traces:
    return Traces.from_spans(otlp_table(shared_file(f"cases/latency/{case}.jsonl.gz")))


@cache
def made(case: str) -> Report:
    return report(traces(case))


@pytest.mark.parametrize("case", ["A00", *STANDS_OUT, "A28"])
def test_percentiles_and_counts_are_those_measured(case: str) -> None:
    truth, latency = expected()[case]["measured"], made(case).latency_ms

    assert made(case).requests == truth["traces"]
    assert latency.p50 == pytest.approx(truth["p50_ms"], rel=0.005, abs=0.006)
    # The reference takes the next request up, ours goes a part of the way: far between two kinds.
    assert latency.p95 == pytest.approx(truth["p95_ms"], rel=0.03)
    assert latency.p99 == pytest.approx(truth["p99_ms"], rel=0.03)


@pytest.mark.parametrize("case", ["A00", *STANDS_OUT, "A28"])
def test_every_nanosecond_of_every_request_is_in_the_ledger(case: str) -> None:
    sums = traces(case).ledger.group_by("trace_id").agg(pl.col("self_ns").sum())

    joined = traces(case).requests.join(sums, on="trace_id", how="left")
    assert (joined["self_ns"] == joined["duration_ns"]).all()


@pytest.mark.parametrize("case", STANDS_OUT)
def test_the_headline_names_where_the_time_goes(case: str) -> None:
    assert STANDS_OUT[case] in headline(made(case)).partition("; another")[0]
    assert (
        abs(sum(row.excess_ms for row in made(case).stages) - made(case).excess_ms)
        < 1e-9 * made(case).excess_ms
    )


def test_of_healthy_requests_nothing_stands_out() -> None:
    assert headline(made("A00")).startswith(
        "Nothing stands out: p99 is 68.6 ms (smoothed 69.6 ms, which the split explains: 21.5 ms above a "
        "typical request), and the largest part"
    )


def test_too_few_requests_give_no_answer_for_p99_but_one_for_p95() -> None:
    assert headline(made("A28")) == (
        "No answer for p99: too few requests: 180 of at least 300 that p99 needs."
    )
    assert "infer-api inference" in headline(report(traces("A28"), percentile=0.95))


def test_a_wait_of_the_median_request_is_said_before_the_tail() -> None:
    for case, share in (("A10", "83%"), ("A11", "98%")):
        assert headline(made(case)).startswith(
            f"Half of all requests already wait: waiting in the queue of infer-api is {share} of the p50 of "
        )
        assert "above the faster half of requests" in headline(made(case))
        assert "typical request" not in headline(made(case))
    assert headline(made("A13")).startswith("p99 is")


def test_a_batch_window_that_never_fills_shows_as_queue_against_the_faster_half() -> None:
    found = made("A10")

    assert found.baseline.kind == "faster_half"
    rows = {(row.stage, row.category): row.excess_ms for row in found.stages}
    assert rows["queue", "queue"] == pytest.approx(27.1, abs=0.05)
    assert rows["inference", "self"] == pytest.approx(5.3, abs=0.05)


def test_percentiles_within_half_a_percent_where_the_issue_asks_for_it() -> None:
    for case in ("A00", "A03", "A10", "A11"):
        truth, latency = expected()[case]["measured"], made(case).latency_ms
        for ours, theirs in ((latency.p50, "p50_ms"), (latency.p95, "p95_ms"), (latency.p99, "p99_ms")):
            assert ours == pytest.approx(truth[theirs], rel=0.005)
