"""From the wire to the views: what was sampled is counted by what it stands for, and said to be."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tailscope_analyzer import Selection
from tailscope_collector import Collector, Settings
from tailscope_collector._counters import Counters
from tailscope_collector._sampling._tail_sampling import Policy, TailSampling
from tailscope_collector._sealed._sealing import Sealer
from tests.collector.building import MS, Bench, SpanSpec, export_request
from tests.collector.serving import ask_rows, call, post_protobuf
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

EXAMPLES = re.findall(r"```sql\n(.*?)```", (CHECKOUT / "docs" / "sampling.md").read_text(), re.DOTALL)
ALL = 1 << 40
DEADLINE_S = 60


def request(*specs: SpanSpec, trace_state: str = "") -> bytes:
    """Return an export request of spans that all have one tracestate."""
    made = export_request(*specs)
    for resource in made.resource_spans:
        resource.scope_spans[0].spans[0].trace_state = trace_state
    return made.SerializeToString()


def calls(traces: Sequence[int], *, ms: float = 10, **more: Any) -> list[SpanSpec]:
    """Return traces of a request and the call to a database that it makes."""
    found: list[SpanSpec] = []
    for trace in traces:
        # Ids as random as real ones: the store looks late spans up by a part of them.
        number = int.from_bytes(np.random.default_rng(trace).bytes(16), "big")
        found += [
            SpanSpec(trace=number, span=1, name="POST /predict", kind=2, duration_ns=round(ms * MS), **more),
            SpanSpec(trace=number, span=2, parent=1, name="GET user", kind=3, duration_ns=4 * MS),
            SpanSpec(trace=number, span=3, parent=2, name="get", kind=2, duration_ns=3 * MS, service="db"),
        ]
    return found


def sampler(**policy: Any) -> TailSampling:
    return TailSampling(Policy(**{"rest": 0.25, "rare": 0, "slow_percentile": 0} | policy), Counters())


def seal(bench: Bench, chooser: TailSampling) -> Any:
    sealed = Sealer(bench.store, bench.source.settler, chooser).seal(quiet_seq=ALL, most_spans=ALL)
    assert sealed is not None
    return sealed


def one(bench: Bench, query: str) -> tuple[Any, ...]:
    rows = bench.rows(query)
    assert len(rows) == 1
    return rows[0]


def test_what_senders_left_out_is_counted_in_every_view(bench: Bench) -> None:
    bench.ingest(
        request(*calls(range(8)), trace_state="ot=th:c"),
        request(*calls(range(100, 103), ms=30)),
        request(*calls([200]), trace_state="ot=p:63"),
    )

    assert one(bench, "select count(*), count_w(sample_weight) from requests") == (12, 8 * 4 + 3)
    assert one(bench, "select count(*), count_w(sample_weight) from spans") == (36, 3 * 35)
    assert one(
        bench, "select p50w(duration_ms, sample_weight), p95w(duration_ms, sample_weight) from requests"
    ) == (
        10.0,
        30.0,
    )
    (edge,) = bench.rows("select caller, callee, calls, errors, p50_ms, gap_ms from dependencies")
    assert edge == ("svc", "db", 35, 0, 4.0, 1.0)


def test_calls_that_failed_and_their_time_are_weighted(bench: Bench) -> None:
    slow = SpanSpec(trace=1, span=2, name="GET user", kind=3, duration_ns=9 * MS, status=2)
    fast = SpanSpec(trace=2, span=2, name="GET user", kind=3, duration_ns=1 * MS)
    answers = [
        SpanSpec(trace=trace, span=3, parent=2, kind=2, duration_ns=MS, service="db") for trace in (1, 2)
    ]
    bench.ingest(request(slow, answers[0], trace_state="ot=th:c"), request(fast, answers[1]))

    (edge,) = bench.rows("select calls, errors, p50_ms, p99_ms, gap_ms from dependencies")

    assert edge == (5, 4, 9.0, 9.0, pytest.approx((4 * 8 + 0) / 5))


def test_calls_that_stand_for_none_have_no_figures(bench: Bench) -> None:
    bench.ingest(request(*calls([1]), trace_state="ot=p:63"))

    assert bench.rows("select calls, p50_ms, gap_ms from dependencies") == [(0, None, None)]
    assert bench.source.report(Selection()).requests == 0


def test_a_report_counts_what_senders_left_out(bench: Bench) -> None:
    bench.ingest(request(*calls(range(400)), trace_state="ot=th:8"))

    made = bench.source.report(Selection(service="svc"))

    assert (made.requests, made.quality.stored, made.quality.effective) == (800, 400, 400)
    assert made.quality.sampled
    assert (
        "800 requests (sampled: 400 stored, which tell as much about p99 as 400 unsampled ones)"
        in " ".join(made.to_text(width=200).split())
    )


def test_before_sealing_everything_is_there_and_after_it_what_was_kept(bench: Bench) -> None:
    bench.ingest(request(*calls(range(1_000))), request(*calls(range(1_000, 1_020), status=2)))
    before = one(bench, "select count(*), count_w(sample_weight) from requests")

    sealed = seal(bench, sampler())
    stored, counted, failed = one(
        bench,
        "select count(*), count_w(sample_weight), count_w(case when status = 'error' then sample_weight end)"
        " from requests",
    )

    assert before == (1_020, 1_020)
    assert sealed.sampled_out_traces == 1_020 - stored
    assert sealed.sampled_out_spans == 3 * sealed.sampled_out_traces
    assert 200 < stored < 340
    assert counted == 4 * (stored - 20) + 20
    assert failed == 20
    assert one(bench, "select count(*), count_w(sample_weight) from spans") == (3 * stored, 3 * counted)
    assert one(bench, "select calls from dependencies") == (counted,)


def test_weights_of_sender_and_collector_multiply(bench: Bench) -> None:
    bench.ingest(request(*calls(range(200)), trace_state="ot=th:8"))

    seal(bench, sampler())

    assert one(bench, "select min(sample_weight), max(sample_weight) from requests") == (8.0, 8.0)
    assert one(bench, "select min(sample_weight), max(sample_weight) from spans") == (8.0, 8.0)


def test_a_late_span_changes_neither_choice_nor_weight(bench: Bench) -> None:
    specs = calls(range(300))
    bench.ingest(request(*specs))
    chooser = sampler()
    seal(bench, chooser)
    kept = one(bench, "select count(*), sum(sample_weight) from requests")
    late = [SpanSpec(trace=spec.trace, span=9, parent=1, name="late") for spec in specs[::3]]

    bench.ingest(request(*late))
    seal(bench, chooser)

    assert one(bench, "select count(*), sum(sample_weight) from requests") == kept
    assert one(bench, "select count(*) from spans where operation = 'late'")[0] == kept[0]


@pytest.fixture
def sampling_collector(tmp_path: Path) -> Iterator[Collector]:
    settings = Settings(seal_spans=1_000, seal_s=1, seal_quiet_s=0, sample_rest=0.25, sample_rare=0)
    with Collector(tmp_path / "data", settings=settings) as made:
        yield made


def test_a_running_collector_samples_seals_and_counts(sampling_collector: Collector) -> None:
    url = sampling_collector.url
    for first in range(0, 1_200, 300):
        answer = post_protobuf(url, request(*calls(range(first, first + 300), ms=10 + first / 300)))
        assert answer.status == 200

    give_up_s = time.monotonic() + DEADLINE_S
    counters = sampling_collector.counters
    while counters.value("spans_sealed_total") + counters.value("spans_sampled_out_total") < 3_600:
        assert time.monotonic() < give_up_s, "the collector sealed nothing"
        time.sleep(0.05)

    stored, counted = ask_rows(url, "select count(*), sum(sample_weight) from requests")[0]
    out = counters.value("traces_sampled_out_total")
    assert stored + out == 1_200
    assert counters.value("traces_kept_total") == stored
    # What was learnt from is kept; the estimate is right to six deviations.
    rest = counters.value("traces_kept_total", reason="rest") + out
    assert abs(counted - 1_200) <= 6 * (3 * rest) ** 0.5
    page = call(f"{url}/metrics").body.decode()
    assert 'traces_kept_total{reason="learning"}' in page


@pytest.mark.parametrize("query", EXAMPLES)
def test_every_example_of_the_page_runs_on_sampled_requests(bench: Bench, query: str) -> None:
    bench.ingest(request(*calls(range(50)), trace_state="ot=th:8"), request(*calls(range(50, 60))))

    assert bench.rows(query)


def test_the_page_says_what_its_examples_give(bench: Bench) -> None:
    bench.ingest(request(*calls(range(50)), trace_state="ot=th:8"), request(*calls(range(50, 60), status=2)))

    totals = next(query for query in EXAMPLES if "effective_w" in query)
    (row,) = bench.rows(totals)

    assert row[:4] == ("svc", "POST /predict", 110, 10)
    assert row[-2:] == (60, round(110**2 / 210))


def test_the_page_names_every_flag_and_macro() -> None:
    page = (CHECKOUT / "docs" / "sampling.md").read_text()

    for name in ("rest", "slow-percentile", "slow-ms", "rare", "window-s"):
        assert f"`--sample-{name}`" in page
    for macro in ("count_w", "quantile_w", "p50w", "p95w", "p99w", "effective_w"):
        assert f"`{macro}(" in page
