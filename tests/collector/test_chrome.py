"""Profiles in Chrome's trace format: what nests in what, what launched what, and under which span."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_collector._files._chrome import from_chrome
from tailscope_collector._files._chrome_events import chrome_text, nanoseconds
from tailscope_collector._files._chrome_nesting import build_tree
from tailscope_collector._files._chrome_plan import Under
from tailscope_collector._files._chrome_slices import NEVER, read_profile
from tests.collector.building import SpanSpec, body
from tests.collector.converting import only, parents, profile

if TYPE_CHECKING:
    from tests.collector.building import Bench

Event = dict[str, Any]


def done(name: str, start: float, duration: float | None, tid: object = 1, **changes: object) -> Event:
    """Return a complete event of a thread of process 9; times in microseconds."""
    made = {"ph": "X", "name": name, "pid": 9, "tid": tid, "ts": start, "dur": duration, **changes}
    return {key: value for key, value in made.items() if value is not None}


def phase(ph: str, name: str, at: float, tid: object = 1, **changes: object) -> Event:
    return {"ph": ph, "name": name, "pid": 9, "tid": tid, "ts": at, **changes}


def launched() -> list[Event]:
    """Return an operation that launches a copy and two kernels, the second after it has ended."""
    return [
        done("aten::conv", 100, 50, cat="cpu_op", args={"External id": 5, "Input Dims": [[8, 3], []]}),
        done("cudaMemcpyAsync", 101, 2, cat="cuda_runtime", args={"correlation": 70}),
        done("cudaLaunchKernel", 110, 5, cat="cuda_runtime", args={"correlation": 71}),
        done("cudaLaunchKernel2", 120, 5, cat="cuda_runtime", args={"correlation": 72}),
        done(
            "Memcpy HtoD (Host -> Device)",
            103,
            7,
            7,
            pid=0,
            cat="gpu_memcpy",
            args={"correlation": 70, "device": 0},
        ),
        done("gemm", 115, 30, 7, pid=0, cat="kernel", args={"correlation": 71, "device": 0, "stream": 7}),
        done("relu", 160, 4, 7, pid=0, cat="kernel", args={"correlation": 72, "device": 0}),
    ]


def test_what_lies_inside_on_a_thread_is_a_child(bench: Bench) -> None:
    profile(
        bench,
        [
            done("inner", 12, 3),
            done("outer", 10, 20),
            done("innermost", 13, 1),
            done("second", 20, 10),
            done("elsewhere", 13, 1, tid=2),
            done("after", 30, 5),
            done("whole", 0.5, 60),
        ],
    )

    assert parents(bench) == {
        "profile": None,
        "whole": "profile",
        "outer": "whole",
        "inner": "outer",
        "innermost": "inner",
        "second": "outer",
        "after": "whole",
        "elsewhere": "profile",
    }


def test_a_child_that_ends_within_the_grain_after_its_parent_is_its_child(bench: Bench) -> None:
    profile(bench, [done("outer", 10, 20), done("late", 25, 6), done("overlaps", 29, 10), done("all", 1, 90)])

    assert parents(bench, "operation <> 'all'") == {"outer": "all", "late": "outer", "overlaps": "all"}


def test_begin_and_end_are_a_span_with_the_arguments_of_both(bench: Bench) -> None:
    profile(
        bench,
        [
            phase("B", "outer", 1, args={"a": 1}),
            phase("B", "inner", 2),
            phase("E", "inner", 4),
            phase("E", "", 9, args={"b": 2.5}),
        ],
    )

    assert parents(bench) == {"outer": None, "inner": "outer"}
    row = only(bench, "select duration_ns, attributes from spans where operation = 'outer'")
    assert row[0] == 8_000
    assert {"a": "1", "b": "2.5"}.items() <= dict(row[1]).items()


def test_what_never_ends_has_no_duration_and_is_said(bench: Bench) -> None:
    requests = profile(bench, [phase("B", "main", 1), phase("B", "open", 2), done("inside", 5, 2)])

    assert parents(bench) == {"main": None, "open": "main", "inside": "open"}
    assert bench.rows("select duration_ns from spans where operation = 'open'") == [(None,)]
    assert requests[-1].warning == "2 of them never ended and have no duration"


def test_an_end_without_its_begin_and_an_event_without_a_time_are_refused_alone(bench: Bench) -> None:
    bad = [phase("E", "lost", 4), {"ph": "X", "name": "x", "pid": 1, "tid": 1}, done("y", 1, 1, tid=[1])]
    (request,) = profile(bench, [*bad, done("good", 1, 2)])

    assert (request.spans, request.refused) == (1, 3)
    assert [(one.place, one.reason) for one in request.refusals[:2]] == [
        ("event 0", "an E without its B"),
        ("event 1", "ts is not there"),
    ]


def test_asynchronous_work_does_not_enclose_what_runs_meanwhile(bench: Bench) -> None:
    profile(
        bench,
        [
            done("main", 1, 100),
            phase("b", "request", 10, id="0x1", cat="net"),
            done("meanwhile", 20, 5),
            phase("b", "retry", 30, id="0x1", cat="net"),
            phase("e", "retry", 35, id="0x1", cat="net"),
            phase("e", "request", 300, id="0x1", cat="net"),
        ],
    )

    assert parents(bench) == {"main": None, "request": "main", "meanwhile": "main", "retry": "request"}
    assert bench.rows("select duration_ns from spans where operation = 'request'") == [(290_000,)]


def test_a_kernel_hangs_below_its_launch_and_counts_for_the_operation(bench: Bench) -> None:
    profile(bench, launched())

    found = parents(bench)
    assert found["gemm"] == "cudaLaunchKernel"
    assert found["relu"] == "cudaLaunchKernel2"
    assert found["Memcpy HtoD (Host -> Device)"] == "cudaMemcpyAsync"
    assert found["cudaLaunchKernel"] == "aten::conv"
    rows = bench.rows("select operation, gpu_time_ms from spans where operation in ('aten::conv', 'gemm')")
    assert dict(rows) == {"aten::conv": pytest.approx(0.041), "gemm": pytest.approx(0.030)}


def test_stages_of_a_model_and_the_shape_of_its_input(bench: Bench) -> None:
    profile(bench, [*launched(), done("detokenize output", 90, 5, cat="user_annotation")])

    stages = dict(bench.rows("select operation, stage from spans"))
    assert stages["aten::conv"] == "inference"
    assert stages["gemm"] == "inference.forward"
    assert stages["Memcpy HtoD (Host -> Device)"] == "inference.h2d"
    assert stages["detokenize output"] == "postprocess"
    (attributes,) = only(bench, "select attributes from spans where operation = 'aten::conv'")
    assert dict(attributes)["input.shape"] == "[[8,3],[]]"
    assert bench.rows("select scope, service from spans where operation = 'gemm'") == [
        ("chrome.kernel", "profile")
    ]


def test_a_flow_is_a_launch_or_a_link(bench: Bench) -> None:
    profile(
        bench,
        [
            done("forward", 10, 5, cat="cpu_op"),
            phase("s", "fwdbwd", 10, id=4, cat="fwdbwd"),
            done("backward", 30, 5, 2, cat="cpu_op"),
            phase("f", "fwdbwd", 30, 2, id=4, cat="fwdbwd", bp="e"),
            phase("s", "ac2g", 11, id=5, cat="ac2g"),
            done("kernel", 20, 5, "stream 7", pid=0, cat="kernel"),
            phase("f", "ac2g", 20, "stream 7", pid=0, id=5, cat="ac2g", bp="e"),
        ],
    )

    assert parents(bench, "operation = 'kernel'") == {"kernel": "forward"}
    (linked,) = only(
        bench,
        "select other.operation from (select unnest(links) as link from spans where operation = 'backward') "
        "join spans as other on other.span_id = link.span_id",
    )
    assert linked == "forward"


def test_each_profiler_step_is_a_request(bench: Bench) -> None:
    profile(
        bench,
        [
            done("PyTorch Profiler (0)", 1, 400, "PyTorch Profiler", pid="Spans", cat="Trace"),
            done("ProfilerStep#1", 10, 100, cat="user_annotation"),
            done("ProfilerStep#2", 110, 200, cat="user_annotation"),
            done("aten::mm", 20, 5, cat="cpu_op"),
            done("aten::mm_backward", 150, 5, 2, cat="cpu_op"),
        ],
    )

    assert bench.rows("select operation, span_count, duration_ms from requests order by start_time") == [
        ("PyTorch Profiler (0)", 1, 0.4),
        ("ProfilerStep#1", 2, 0.1),
        ("ProfilerStep#2", 2, 0.2),
    ]
    assert parents(bench)["aten::mm_backward"] == "ProfilerStep#2"


def test_threads_and_processes_have_their_names(bench: Bench) -> None:
    names = [
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "ranker"}},
        {"ph": "M", "name": "thread_name", "pid": 9, "tid": 1, "args": {"name": "MainThread"}},
    ]
    profile(bench, [*names, done("work", 1, 2)], host_name="node-3")

    service, host, attributes = only(bench, "select service, host, attributes from spans")
    assert (service, host) == ("ranker", "node-3")
    assert dict(attributes) == {"thread.id": "1", "thread.name": "MainThread"}


def test_instants_are_events_and_counters_are_counted(bench: Bench) -> None:
    requests = profile(bench, [done("work", 1, 9), phase("i", "tick", 5), phase("C", "memory", 6)])

    (events,) = only(bench, "select events from spans where operation = 'work'")
    assert [event["name"] for event in events] == ["tick"]
    assert requests[0].warning == "passed over what is no span: 1 of phase 'C'"


@pytest.mark.parametrize(
    ("written", "expected_ns"),
    [("1712195495507783.123", 1_712_195_495_507_783_123), ("1.5", 1_500), ("2", 2_000), ("15e-1", 1_500)],
)
def test_a_nanosecond_survives(written: str, expected_ns: int) -> None:
    source = chrome_text(f'[{{"ph": "X", "ts": {written}, "dur": 0.001, "name": "a"}}]')
    assert source is not None

    (made,) = read_profile(source).slices

    assert (made.start, made.end) == (expected_ns, expected_ns + 1)


def test_times_that_are_none_are_refused() -> None:
    for wrong in ("soon", None, True, [1]):
        with pytest.raises((ValueError, TypeError)):
            nanoseconds(wrong)


def test_the_base_of_the_file_is_added_wherever_it_stands(bench: Bench) -> None:
    profile(bench, [done("work", 1.25, 2)], baseTimeNanoseconds=1_700_000_000_000_000_000)

    assert only(bench, "select start_unix_nano from spans") == (1_700_000_000_000_001_250,)


def test_a_file_that_ends_in_the_middle_keeps_what_it_has() -> None:
    whole = json.dumps([done("a", 1, 2), done("b", 5, 2)])
    for text, spans in ((whole[:-1], 3), (whole[:-9], 1), ('{"x": 1, "traceEvents": ' + whole[:-9], 1)):
        source = chrome_text(text)
        assert source is not None

        (request,) = from_chrome(source)

        assert request.spans == spans
        assert request.warning == "the file ends inside its events"


@pytest.mark.parametrize(
    "text", ['{"a": "traceEvents"}', '[{"id": 1}]', "[]", "{}", '{"traceEvents": 5}', "["]
)
def test_other_json_is_no_profile(text: str) -> None:
    assert chrome_text(text) is None


def test_an_empty_profile_has_no_spans() -> None:
    source = chrome_text('{"traceEvents": []}')
    assert source is not None

    assert [request.spans for request in from_chrome(source)] == [0]


def under(start_ns: int, duration_ns: int) -> Under:
    return Under((1).to_bytes(16, "big"), (5).to_bytes(8, "big"), "ranker", start_ns, start_ns + duration_ns)


def test_under_a_span_everything_is_part_of_its_trace_and_service(bench: Bench) -> None:
    start_ns = 1_700_000_000_000_000_000
    bench.ingest(
        body(
            SpanSpec(span=1, name="request", kind=2, start_ns=start_ns, duration_ns=500_000),
            SpanSpec(span=5, parent=1, name="inference", start_ns=start_ns + 1_000, duration_ns=400_000),
        )
    )
    base_ns = start_ns - 90_000
    profile(bench, launched(), under=under(start_ns + 1_000, 400_000), baseTimeNanoseconds=base_ns)

    assert parents(bench)["aten::conv"] == "inference"
    assert only(bench, "select count(distinct trace_id), count(*) from spans") == (1, 9)
    assert bench.rows("select service, start_unix_nano from spans where operation = 'aten::conv'") == [
        ("ranker", base_ns + 100_000)
    ]
    assert bench.rows("select operation, span_count from requests") == [("request", 9)]


def test_under_a_span_the_window_of_the_profiler_hides_nothing(bench: Bench) -> None:
    window = done("PyTorch Profiler (0)", 90, 200, "PyTorch Profiler", pid="Spans", cat="Trace")
    bench.ingest(body(SpanSpec(span=5, kind=2, start_ns=90_000, duration_ns=200_000)))
    profile(bench, [window, *launched()], under=under(90_000, 200_000))

    assert parents(bench)["PyTorch Profiler (0)"] == "op"
    assert parents(bench)["aten::conv"] == "PyTorch Profiler (0)"
    ledger = dict(bench.rows("select operation, sum(self_ms) from stages group by all"))
    assert ledger["PyTorch Profiler (0)"] == pytest.approx(0.200 - 0.050)


def test_a_profile_of_another_time_is_moved_to_the_start_of_the_span(bench: Bench) -> None:
    requests = profile(bench, launched(), under=under(5_000_000_000, 1_000))

    assert only(bench, "select min(start_unix_nano) from spans") == (5_000_000_000,)
    assert requests[0].warning == "moved by +4.999900 s to the start of the span it is under"


def test_the_same_file_twice_is_stored_once_and_under_two_spans_twice(bench: Bench) -> None:
    profile(bench, launched())
    profile(bench, launched())
    profile(bench, launched(), under=under(5_000_000_000, 1_000))

    assert only(bench, "select count(*) from spans") == (2 * 7,)


def test_many_overlapping_slices_take_no_more_than_their_number() -> None:
    # 40,000 that each overlap the next, and as many that are inside one another.
    stairs = [done("s", at, 1_000_000, tid=1) for at in range(40_000)]
    nested = [done("n", at, 1_000_000 - 2 * at, tid=2) for at in range(40_000)]
    source = chrome_text(json.dumps(stairs + nested))
    assert source is not None

    found = read_profile(source)
    tree = build_tree(found)

    assert all(made.parent == number - 1 for number, made in enumerate(tree.slices[40_001:], 40_001))
    assert not any(made.end == NEVER for made in tree.slices)
