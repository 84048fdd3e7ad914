"""What people read: the headline, and reports and traces as text, Markdown and HTML."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import numpy as np
import pytest

from tailscope_analyzer import Report, headline, render_trace, report, trace_detail
from tailscope_analyzer._headline import milliseconds, standing_out
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
                "inference", 50, 112, "serve", service="ranker", stage="inference", events=[gc_event(90, 30)]
            ),
        )
    )


def test_a_trace_in_the_terminal_reads_as_reviewed() -> None:
    assert_golden("trace.txt", render_trace(trace(), width=100))
    assert_golden("trace-narrow.txt", render_trace(trace(), width=60))


def test_a_long_trace_is_cut_and_says_so() -> None:
    assert "… 4 more spans" in render_trace(trace(), most_spans=2)


def test_a_trace_without_requests_or_time_is_drawn_too() -> None:
    assert "Not a request" in render_trace(trace_detail(table(span("model.load", 0, 0, stage="coldstart"))))
