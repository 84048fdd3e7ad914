"""Causes outside of what is recorded: the client, what nobody knows, and a process that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tailscope_analyzer import Traces, report
from tailscope_analyzer._causes._stalls import _overlaps  # pyright: ignore[reportPrivateUsage]
from tailscope_analyzer._evidence._pieces import ARRIVAL, NO_STAGE, pieces
from tailscope_analyzer.simulate import (
    CacheMiss,
    ClientSide,
    GcPause,
    MemoryPressure,
    NetworkDelay,
    Service,
    run,
)
from tests.analyzer.build import otlp_table
from tests.analyzer.evidences import evidence_of
from tests.analyzer.plants import hit
from tests.analyzer.windows import Window, healthy
from tests.shared import shared_file

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats


def named(window: Window) -> list[str]:
    return [one["cause"] for one in report(window.traces()).causes]


def slow_to_read(window: Window) -> Floats:
    window.ms["network.send"] = window.rng.uniform(0.0, 0.2, window.n)
    return hit(window, "network.send", 0.05, 80, 200)


def test_a_server_that_states_its_wait_for_clients_blames_them() -> None:
    window = healthy(330)
    window.state("response.send_ms", slow_to_read(window))

    (cause,) = report(window.traces()).causes

    assert (cause["cause"], cause["confidence"]) == ("client_side", "confirmed")
    assert cause["share_of_tail"] > 0.9


def test_a_client_that_takes_long_over_a_large_answer_is_not_slow() -> None:
    window = healthy(330)
    late = slow_to_read(window)
    window.state("response.body.bytes", np.where(late > 0, 4e6, 4e3).astype(int))

    assert named(window)[0] == "large_payload"
    assert "client_side" not in named(window)


def test_what_nobody_explains_is_said_last_and_takes_nothing_from_others() -> None:
    faults = [MemoryPressure(told=False, ms=500, share=0.008), CacheMiss(ms=250, share=0.05)]
    simulation = run(11, 1200, service=Service(sends_gpu_time=False), faults=faults)

    first, last = report(simulation.traces).causes

    assert (first["cause"], last["cause"]) == ("cache_miss", "unattributed")
    assert last["share_of_tail"] > first["share_of_tail"]
    assert first["share_of_tail"] + last["share_of_tail"] < 1.05
    assert "gpu.time_ms" in last["summary"]


@pytest.mark.parametrize("key", ["gen_ai.request.model", "gen_ai.usage.output_tokens"])
def test_kinds_and_lengths_of_requests_are_no_mystery(key: str) -> None:
    window = healthy(400)
    some = window.some(0.05)
    window.ms["inference"] *= np.where(some, 5.0, 1.0)
    told = {"gen_ai.request.model": np.where(some, "large", "small")}
    window.state(key, told.get(key, np.where(some, 500, 100)))

    assert "unattributed" not in named(window)


def test_a_slow_way_to_a_process_is_no_stall_of_it_however_busy_it_is() -> None:
    busy = Service(per_s=80)

    way = report(run(5, 900, service=busy, faults=[NetworkDelay()]).traces).causes
    stall = report(run(5, 900, service=busy, faults=[GcPause(told=False, count=6)]).traces).causes

    assert [one["cause"] for one in way] == ["network_delay"]
    assert stall[0]["cause"] == "process_stall"


def test_requests_that_wait_outside_for_a_recorded_collection_wait_for_the_collector() -> None:
    made = Traces.from_spans(otlp_table(shared_file("cases/latency/A01.jsonl.gz")))

    causes = report(made).causes

    assert {one["cause"] for one in causes} == {"gc_pause"}
    assert sum(one["share_of_tail"] for one in causes) > 0.95


def test_a_blocked_loop_is_seen_in_half_of_its_requests() -> None:
    table = otlp_table(shared_file("cases/latency/A16.jsonl.gz"))
    traces = [str(trace) for trace in table["trace_id"].to_pylist()]
    kept = set(sorted(set(traces))[::2])

    half = table.take([row for row, trace in enumerate(traces) if trace in kept])
    causes = report(Traces.from_spans(half)).causes

    assert (causes[0]["cause"], causes[0]["confidence"]) == ("event_loop_blocked", "possible")


def test_a_batch_window_is_seen_by_who_waits_alone_where_nothing_is_stated() -> None:
    silent = otlp_table(shared_file("cases/latency/A10.jsonl.gz")).drop_columns(["attributes"])

    (cause,) = report(Traces.from_spans(silent)).causes

    assert (cause["cause"], cause["confidence"]) == ("batch_window", "likely")
    assert 0.7 < cause["share_of_tail"] < 1.0


def test_pieces_are_cut_where_spans_begin_and_end() -> None:
    window = healthy(60)

    found = pieces(evidence_of(window), "ranker")

    one = found.filter(pl.col("request") == 0)
    assert one["doing"].to_list() == [
        ARRIVAL, "auth", NO_STAGE, "preprocess", NO_STAGE, "queue", NO_STAGE, "inference", NO_STAGE,
        "postprocess", NO_STAGE,
    ]  # fmt: skip
    lasted = (one["end_ns"] - one["start_ns"]).to_numpy() / 1e6
    assert lasted[[1, 3, 7]] == pytest.approx(
        [window.ms[stage][0] for stage in ("auth", "preprocess", "inference")], abs=1e-5
    )


def test_overlaps_are_counted_by_pairs() -> None:
    start = np.array([[0.0, 1.0, 5.0], [0.0, 1.0, 2.0]])
    end = np.array([[2.0, 3.0, 6.0], [9.0, 8.0, 7.0]])

    assert _overlaps(start, end).tolist() == [1, 3]


def test_slow_clients_may_be_told_of_by_a_span() -> None:
    causes = report(run(3, 600, service=Service(gateway=None), faults=[ClientSide()]).traces).causes

    assert [(one["cause"], one["stage"]) for one in causes] == [("client_side", "network")]
