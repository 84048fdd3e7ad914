"""The Trace page as Streamlit runs it, on traces in which much happens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tailscope.conventions import ENV_URL
from tailscope_analyzer import connect
from tailscope_dashboard import _trace_data as trace_data
from tailscope_dashboard import _waterfall as waterfall
from tailscope_dashboard._child import collector_on
from tests.dashboard.eventful import Eventful, post_eventful
from tests.dashboard.traffic import SCRIPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = "from tailscope_dashboard import show\nshow()\n"


@pytest.fixture(scope="module")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Eventful]]:
    with collector_on(tmp_path_factory.mktemp("eventful")) as url:
        yield url, post_eventful(url)


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch, eventful: tuple[str, Eventful]) -> Callable[..., AppTest]:
    def run(trace: str, **parameters: str) -> AppTest:
        monkeypatch.setenv(ENV_URL, eventful[0])
        monkeypatch.setattr("tailscope_dashboard._pages.DEFAULT", "trace")
        st.cache_data.clear()
        test = AppTest.from_string(PAGE, default_timeout=60)
        test.query_params.update({"trace": trace} | parameters)
        return test.run()

    return run


def words(test: AppTest) -> str:
    kinds = ("markdown", "text", "caption", "info", "warning", "error")
    return "\n".join(str(getattr(element, "value", "")) for kind in kinds for element in test.get(kind))


def table(test: AppTest, column: str) -> pl.DataFrame | None:
    """Return the first table with this column."""
    found: list[Any] = [frame.value for frame in test.dataframe if column in frame.value]
    return pl.DataFrame(found[0].to_dict("list")) if found else None


def facts(test: AppTest) -> dict[str, str]:
    rows = table(test, "what")
    assert rows is not None
    return dict(rows.select("what", "is").iter_rows())


def links(test: AppTest) -> list[tuple[str, str, str]]:
    rows = table(test, "relation")
    return [] if rows is None else rows.select("relation", "operation", "trace_id").rows()


def test_span_where_the_error_began_is_the_chosen_one(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    test = visit(eventful[1].slow)

    assert not test.exception
    assert "1 span with an error" in words(test)
    assert "The clock of model is behind its caller's by 28.000 ms" in words(test)
    said = facts(test)
    assert (said["stage"], said["moved by"], said["status"]) == ("inference", "30.0 ms", "error")
    assert said["status message"] == f"out of memory {SCRIPT}"
    assert SCRIPT not in words(test)


def test_batch_leads_to_its_members_and_each_of_them_back(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    found = eventful[1]

    batch = visit(found.batch, beside="typical")
    member = visit(found.member, span=f"{708:016x}")

    assert len(links(batch)) == 3
    assert ("links to", "POST /generate", found.slow) in links(batch)
    assert links(member) == [("links to", "batch", found.batch)]
    assert "Not a request" in words(batch)
    assert "This trace has no ledger" in words(batch)
    assert "Too few requests for a typical request of this operation" in words(batch)


def test_typical_request_is_laid_beside_the_slow_one(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    test = visit(eventful[1].slow, beside="typical")

    assert not test.exception
    assert "Half of 9 requests of this operation within an hour took less than 35.0 ms." in words(test)
    both = table(test, "change_ms")
    assert both is not None
    assert both.select("stage", "this_ms", "other_ms").row(0) == ("queue", 90.0, 5.0)
    assert both["this_ms"].sum() == pytest.approx(140.0)


def test_any_trace_can_be_laid_beside_it(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    found = eventful[1]

    assert f"Beside trace {found.typical}." in words(visit(found.slow, beside=found.typical))
    assert "not in the store" in words(visit(found.slow, beside="f" * 32))


def test_choices_are_written_to_the_address(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    test = visit(eventful[1].slow)

    test.segmented_control(key="in:view").set_value("flame")
    test.segmented_control(key="in:times").set_value("recorded")
    test.toggle(key="in:beside").set_value(True).run()

    assert not test.exception
    chosen = {name: value for name, value in test.query_params.items() if name != "trace"}
    assert chosen == {"view": "flame", "times": "recorded", "beside": "typical"}


def test_trace_of_one_clock_offers_no_choice_of_clocks(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    test = visit(eventful[1].typical, times="recorded")

    assert [control.label for control in test.segmented_control] == ["View"]


@pytest.mark.parametrize(
    ("form", "key"), [("otlp", "resourceSpans"), ("jaeger", "data"), ("perfetto", "traceEvents")]
)
def test_trace_is_downloaded_as(
    monkeypatch: pytest.MonkeyPatch, eventful: tuple[str, Eventful], form: str, key: str
) -> None:
    monkeypatch.setenv(ENV_URL, eventful[0])

    assert json.loads(trace_data.export(eventful[1].slow, form))[key]


def test_incomplete_trace_can_be_asked_for_again(
    visit: Callable[..., AppTest], monkeypatch: pytest.MonkeyPatch, eventful: tuple[str, Eventful]
) -> None:
    asked: list[str] = []
    with connect(eventful[0]) as client:
        outline = client.outline(eventful[1].typical) | {"complete": False}

    def answer(_: object, trace_id: str) -> object:
        asked.append(trace_id)
        return outline

    monkeypatch.setattr("tailscope_analyzer.Client.outline", answer)
    trace_data.forget()
    test = visit(eventful[1].typical)
    again = next(button for button in test.button if button.label == "Ask again")
    again.click().run()
    trace_data.forget()

    assert "Not all spans of this trace have arrived" in words(test)
    assert len(asked) == 2


def test_trace_that_was_dropped_meanwhile_is_a_sentence_and_no_traceback(
    visit: Callable[..., AppTest], eventful: tuple[str, Eventful]
) -> None:
    found = eventful[1]
    with connect(eventful[0]) as client:
        outline = client.outline(found.typical) | {"trace_id": "d" * 32}

    def answer(_client: object, _trace_id: str) -> object:
        return outline

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tailscope_analyzer.Client.outline", answer)
        test = visit("d" * 32)

    assert not test.exception
    assert "is no longer stored" in words(test)


def test_click_in_the_waterfall_sends_nothing_that_the_browser_has(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", state)
    told = waterfall._told  # pyright: ignore[reportPrivateUsage]  the rule itself; the journey sees its effect

    first = told("w", "t1", None)
    state["w"] = {"span": "b"}
    clicked = waterfall.clicked("w")
    after_the_click = told("w", "t1", "b")
    from_a_link = told("w", "t1", "c")
    elsewhere = told("w", "t2", None)

    assert (first, clicked) == ((None, 0), "b")
    assert after_the_click == first
    assert from_a_link == ("c", 1)
    assert elsewhere == (None, 2)
