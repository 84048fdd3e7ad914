"""What people read: the headline, and reports and traces as text, Markdown and HTML."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest

from tailscope_analyzer import Report, Traces, headline, render_trace, report, trace_detail
from tailscope_analyzer._findings import standing_out
from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._report import StageRow
from tests.analyzer.build import gc_event, span, table
from tests.analyzer.golden import assert_golden
from tests.analyzer.populations import mixed, traces_of


def sample() -> Report:
    parts = mixed(600)
    parts["api", "network", "gap"] += parts["api", "queue", "queue"] / 20
    return report(traces_of({**parts, ("features|db", "other", "self"): np.full(600, 3.0)}))


def with_rows(*rows: StageRow) -> Report:
    return dataclasses.replace(sample(), stages=rows, edges=())


def row(**changed: object) -> StageRow:
    base = {
        "service": "api",
        "stage": "inference",
        "category": "self",
        "typical_ms": 10.0,
        "tail_ms": 100.0,
        "excess_ms": 90.0,
        "share": 0.9,
        "ci95_ms": (80.0, 95.0),
    }
    return StageRow(**{**base, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"ci95_ms": (-1.0, 95.0)}, id="may be nothing"),
        pytest.param({"share": 0.19}, id="a small part of the excess"),
        pytest.param({"excess_ms": 1.0}, id="a small part of the latency"),
        pytest.param({"typical_ms": 51.0}, id="work that grew by less than a factor of two"),
    ],
)
def test_a_row_does_not_stand_out_when(changed: dict[str, object]) -> None:
    assert standing_out(with_rows(row()))
    assert standing_out(with_rows(row(**changed))) == ()


def test_a_wait_stands_out_without_doubling() -> None:
    assert standing_out(with_rows(row(category="queue", typical_ms=90.0)))


def test_the_headline_says_how_much_how_sure_and_what_else() -> None:
    second = row(category="gc", excess_ms=30.0, share=0.3, ci95_ms=(1.0, 40.0))

    said = headline(with_rows(row(category="dependency", stage="auth"), second))

    assert said.endswith(
        "90.0 ms of that (90%, 95 % interval 80.0 ms to 95.0 ms) is calls that api makes during auth; "
        "another 30.0 ms garbage collection in api during inference."
    )


def test_a_wait_for_a_dependency_names_it() -> None:
    said = headline(with_rows(row(category="dependency", stage="auth", callees=("redis", "users", ""))))

    assert said.endswith("is waiting for redis and 2 others, called by api during auth.")


def test_a_dependency_is_named_from_its_spans_to_the_sentence() -> None:
    rows = [
        one
        for number in range(400)
        for one in (
            span("root", 0, 10 + number, trace=f"t{number}", id=f"r{number}", kind="server"),
            span(
                "GET user",
                1,
                6 + number,
                f"r{number}",
                trace=f"t{number}",
                id=f"c{number}",
                kind="client",
                attributes={"peer.service": "redis"},
            ),
        )
    ]

    made = report(Traces.from_spans(table(*rows)))

    assert "is waiting for redis, called by api outside any stage" in headline(made)
    assert [(edge.caller, edge.callee) for edge in made.edges] == [("api", "redis")]
    assert "api -> redis" in made.to_text()
    assert "api -\\> redis" in made.to_markdown()


def test_calls_to_nobody_named_are_not_given_to_the_smaller_named_one() -> None:
    said = headline(with_rows(row(category="dependency", stage="auth", callees=("", "redis"))))

    assert "is calls that api makes during auth." in said


def test_garbage_collection_counts_together_wherever_it_struck() -> None:
    said = headline(
        with_rows(
            row(excess_ms=15.0, share=0.15),
            row(category="gc", stage="inference", excess_ms=14.0, share=0.14, ci95_ms=(5.0, 20.0)),
            row(category="gc", stage="preprocess", excess_ms=13.0, share=0.13, ci95_ms=(4.0, 20.0)),
        )
    )

    assert said.endswith(": 27.0 ms of that (27%) is garbage collection in api, across its stages.")


def test_the_percentile_said_is_that_of_the_sample() -> None:
    smoothed = with_rows(row())
    assert smoothed.tail_ms == pytest.approx(157.0, abs=0.05)

    said = headline(smoothed)

    assert said.startswith(
        "p99 is 141.7 ms (smoothed 157.0 ms, which the split explains: 118.2 ms above a typical request): "
        "90.0 ms of that"
    )


def test_requests_of_several_operations_and_failed_ones_are_told_of() -> None:
    made = traces_of(mixed(400))
    number = pl.int_range(pl.len())
    requests = made.requests.with_columns(
        operation=pl.when(number < 100).then(pl.lit("GET /healthz")).otherwise("operation"),
        status=pl.when(number < 17).then(pl.lit("error")).otherwise(pl.lit("unset")),
        http_status=pl.when(number == 17).then(503),
    )
    several = Traces.from_parts(requests, made.ledger)

    assert report(several).notes == (
        "These requests mix 2 operations (POST /predict 300, GET /healthz 100): choose one with --operation.",
        "18 of 400 requests failed.",
    )
    for page in (report(several).to_text(), report(several).to_markdown(), report(several).to_html()):
        assert "18 of 400 requests failed." in page
    assert report(made).notes == ()


def test_time_in_no_stage_is_not_said_to_be_in_the_stage_other() -> None:
    said = headline(with_rows(row(category="gc", stage="other")))

    assert said.endswith("is garbage collection in api outside any stage.")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00 ms"), (0.256, "0.26 ms"), (12.34, "12.3 ms"), (1234.5, "1234 ms"), (34_223.85, "34.2 s")],
)
def test_durations_have_a_unit_and_about_three_digits(value: float, text: str) -> None:
    assert milliseconds(value) == text


def test_the_text_report_reads_as_reviewed() -> None:
    assert_golden("report.txt", sample().to_text(width=100))
    assert_golden("report-narrow.txt", sample().to_text(width=44))
    assert_golden("report-refused.txt", report(traces_of(mixed(20))).to_text(width=100))
    assert_golden("report-empty.txt", report(traces_of(mixed(0))).to_text(width=100))


def test_the_markdown_report_reads_as_reviewed() -> None:
    assert_golden("report.md", sample().to_markdown())


@pytest.mark.parametrize("width", [40, 50, 60, 72, 84, 96, 112, 200])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(width: int) -> None:
    text = sample().to_text(width=width)

    assert max(len(line) for line in text.splitlines()) <= width
    shown = [stage for stage in sample().stages if abs(stage.share) >= 0.005]
    assert len(shown) >= 2
    for stage in shown:
        assert milliseconds(abs(stage.excess_ms)) in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("size", [1.0, 1e4, 1e9])
def test_hostile_names_and_huge_numbers_cut_no_number(width: int, size: float) -> None:
    evil = "a\x1b[31mred\nsecond line \u202eright to left " * 9
    large = row(service=evil, typical_ms=1.25 * size, excess_ms=7.5 * size, ci95_ms=(1.5 * size, 9.5 * size))
    report = dataclasses.replace(with_rows(large, row(stage="queue", category="dependency")), services=())

    text = report.to_text(width=width)

    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    assert "\u202e" not in text
    head = next(at for at, line in enumerate(text.splitlines()) if line.startswith("stage"))
    line = text.splitlines()[head + 1]
    assert f"+{milliseconds(7.5 * size)}" in line
    assert line.rstrip(" █▉▊▋▌▍▎▏").endswith("90%")
    shown = text.splitlines()[head]
    assert ("typical" in shown) == (f" {milliseconds(1.25 * size)} " in line)
    assert ("95 % interval" in shown) == (
        f"+{milliseconds(1.5 * size)} … +{milliseconds(9.5 * size)}" in line
    )


def test_a_window_of_less_than_a_second_shows_parts_of_it() -> None:
    assert "from 2025-01-01 00:00:00.000 to 2025-01-01 00:00:00.599 UTC" in sample().to_markdown()


def test_requests_that_all_take_the_same_time_have_no_tail() -> None:
    same = report(
        traces_of({("api", "queue", "queue"): np.full(500, 5.1), ("api", "a", "self"): np.full(500, 0.1)})
    )

    assert headline(same) == "Nothing stands out: p99 is 5.2 ms, no more than a typical request."
    assert same.excess_ms == 0.0
    assert {(stage.excess_ms, stage.share, stage.ci95_ms) for stage in same.stages} == {
        (0.0, 0.0, (0.0, 0.0))
    }
    assert "-0" not in same.to_text().replace("2025-01-01", "")


def test_colour_is_added_only_when_asked_for() -> None:
    assert "\x1b[" not in sample().to_text()
    assert "\x1b[" in sample().to_text(colour=True)


def test_names_from_outside_cannot_mark_up_a_page() -> None:
    evil = "<script>alert(1)</script> [red]x[/red] | `a`"
    parts = mixed(400)
    named = report(traces_of({(evil, "queue", "queue"): parts["api", "queue", "queue"] * 50}))

    assert "<script>" not in named.to_html()
    assert "&lt;script&gt;" in named.to_html()
    assert "\\<script\\>" in named.to_markdown()
    assert "[red]x[/red]" in named.to_text(width=400)


def test_markdown_shows_entities_and_formulas_as_they_are_written() -> None:
    named = with_rows(row(service="&lt;b&gt; $x^2$"))

    assert "\\&lt;b\\&gt; \\$x^2\\$" in named.to_markdown()


def test_the_page_loads_nothing_and_closes_what_it_opens() -> None:
    page = sample().to_html()
    opened: list[str] = []

    class Checker(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in {"script", "link", "img", "iframe"}
            assert not {"src", "href", "onclick"} & {name for name, _ in attrs}
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Checker().feed(page)
    assert opened == []
    assert headline(sample()) in page.replace("&gt;", ">")


def trace() -> dict[str, object]:
    return trace_detail(
        table(
            span("POST /predict", 0, 120, kind="server", service="gateway"),
            span("POST ranker", 10, 118, "POST /predict", kind="client", service="gateway"),
            span("serve", 40, 115, "POST ranker", kind="server", service="ranker"),
            span("auth", 40, 48, "serve", service="ranker", stage="auth", status="error"),
            span("audit [log]", 42, 47, "serve", service="ranker"),
            span(
                "GET user",
                43,
                46,
                "auth",
                service="ranker",
                kind="client",
                status="error",
                attributes={"peer.service": "redis", "http.status_code": "503", "error.type": "TimeoutError"},
            ),
            span(
                "inference", 50, 112, "serve", service="ranker", stage="inference", events=[gc_event(90, 30)]
            ),
        )
    )


def test_a_trace_in_the_terminal_reads_as_reviewed() -> None:
    assert_golden("trace.txt", render_trace(trace(), width=100))
    assert_golden("trace-narrow.txt", render_trace(trace(), width=60))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_trace_cuts_no_number_and_obeys_no_name(width: int) -> None:
    evil = "POST \x1b[2J/very\nlong\u202e" * 30
    rows = [
        span(evil, 0, 5_000_000, id="a", kind="server", service=evil),
        span(evil, 1, 4_999_000, "a", id="b", stage="queue"),
    ]

    text = render_trace(trace_detail(table(*rows)), width=width)

    assert max(len(line) for line in text.splitlines()) <= width
    assert not {"\x1b", "\u202e"} & set(text)
    ledger = text[text.index("where the") :]
    assert all(ms in ledger for ms in ("4,999.0 s", "1001 ms"))
    assert text.count("5,000.0 s") == 2


def test_a_long_trace_is_cut_and_says_so() -> None:
    assert "… 5 more spans" in render_trace(trace(), most_spans=2)


def test_a_trace_without_requests_or_time_is_drawn_too() -> None:
    assert "Not a request" in render_trace(trace_detail(table(span("model.load", 0, 0, stage="coldstart"))))
