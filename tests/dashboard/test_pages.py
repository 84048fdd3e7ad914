"""Every page as Streamlit runs it: on a seeded collector, on an empty one, on none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from tailscope.conventions import ENV_URL
from tailscope_analyzer import connect
from tailscope_dashboard._examples import EXAMPLES, VIEWS
from tailscope_dashboard._pages import PAGES
from tests.dashboard.traffic import SCRIPT
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from tests.dashboard.conftest import Seeded

POPULATION_PAGES = ["overview", "why", "requests"]
SCRIPT_TEXT = "from tailscope_dashboard import show\nshow()\n"


class Visit:
    """Open a page of the application in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, url: str, page: str, **parameters: str) -> AppTest:
        self._monkeypatch.setenv(ENV_URL, url)
        # A page is chosen by the path of the address, which a test run has not: make it the first one.
        self._monkeypatch.setattr("tailscope_dashboard._pages.DEFAULT", page)
        st.cache_data.clear()
        test = AppTest.from_string(SCRIPT_TEXT, default_timeout=60)
        test.query_params.update(parameters)
        return test.run()


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Visit:
    return Visit(monkeypatch)


def words(test: AppTest) -> str:
    """Return all that is written on a page."""
    kinds = ("markdown", "text", "caption", "info", "warning", "error", "code", "subheader")
    return "\n".join(str(getattr(element, "value", "")) for kind in kinds for element in test.get(kind))


def figure(test: AppTest, label: str) -> str:
    """Return the large number with this label."""
    return next(str(metric.value) for metric in test.metric if metric.label == label)


@pytest.mark.parametrize("page", PAGES)
def test_page_renders_seeded_without_an_exception(visit: Visit, seeded: Seeded, page: str) -> None:
    test = visit(seeded.url, page, trace=seeded.trace_ids[0], q="select 1 as one")

    assert not test.exception
    assert not test.error


def test_thin_script_is_the_same_application(monkeypatch: pytest.MonkeyPatch, seeded: Seeded) -> None:
    monkeypatch.setenv(ENV_URL, seeded.url)

    test = AppTest.from_file(str(CHECKOUT / "dashboard" / "app.py"), default_timeout=60).run()

    assert figure(test, "Requests") == "600"


@pytest.mark.parametrize("page", POPULATION_PAGES)
def test_empty_store_says_how_to_send_the_first_trace(visit: Visit, empty_collector: str, page: str) -> None:
    test = visit(empty_collector, page)

    assert not test.exception
    assert "Send your first trace" in words(test)
    assert "import tailscope" in words(test)


@pytest.mark.parametrize("page", PAGES)
def test_unreachable_collector_says_what_to_start(visit: Visit, page: str) -> None:
    test = visit("http://127.0.0.1:9", page, trace="0" * 32, q="select 1")

    assert not test.exception
    assert "No collector answers" in words(test)
    assert "tailscope serve --data" in words(test)


@pytest.mark.parametrize("page", POPULATION_PAGES)
def test_selection_without_requests_says_so(visit: Visit, seeded: Seeded, page: str) -> None:
    test = visit(seeded.url, page, since="2027-01-01T00:00:00Z", until="2027-01-02T00:00:00Z")

    assert not test.exception
    assert "Widen the window or clear the filters" in words(test)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"service": "nope"}, "a service that has no requests here: nope."),
        (
            {"service": "ranker", "operation": "GET /"},
            "an operation of ranker that has no requests here: GET /.",
        ),
        ({"where": "duration_ms < 0"}, "No request meets the condition, at any time."),
    ],
    ids=["service", "operation", "condition"],
)
@pytest.mark.parametrize("page", POPULATION_PAGES)
def test_selection_that_is_empty_at_any_time_says_which_part_is(
    visit: Visit, seeded: Seeded, page: str, parameters: dict[str, str], reason: str
) -> None:
    test = visit(seeded.url, page, **parameters)

    assert not test.exception
    assert reason in words(test)
    assert "window" not in words(test).lower()


def test_window_of_all_is_that_of_the_chosen_requests(visit: Visit, seeded: Seeded) -> None:
    with connect(seeded.url) as client:
        first = client.sql("select min(start_time) from requests where operation = 'POST /embed'").rows[0][0]
    everything = visit(seeded.url, "overview")

    embed = visit(seeded.url, "overview", operation="POST /embed")

    assert f"{first:%H:%M:%S} \u2013" in words(embed)
    assert f"{first:%H:%M:%S} \u2013" not in words(everything)


def test_unknown_window_of_a_link_is_named(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "overview", window="7m")

    assert figure(test, "Requests") == "600"
    assert "There is no window '7m'" in words(test)


def test_chosen_percentile_is_the_one_explained(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "why", percentile="95")

    assert test.selectbox(key="in:percentile").value == "95"
    assert "p95 is" in words(test)
    assert "p99 is" not in words(test)


@pytest.mark.parametrize("page", ["overview", "why"])
def test_choosing_a_percentile_writes_the_address(visit: Visit, seeded: Seeded, page: str) -> None:
    test = visit(seeded.url, page)
    assert "p99 is" in words(test)

    test.selectbox(key="in:percentile").select("90").run()

    assert test.query_params == {"percentile": "90"}
    assert "p90 is" in words(test)


@pytest.mark.parametrize("page", ["overview", "why"])
def test_pooled_operations_are_pointed_out(visit: Visit, seeded: Seeded, page: str) -> None:
    assert "Mixes 2 operations; choose one" in words(visit(seeded.url, page))
    assert "Mixes" not in words(visit(seeded.url, page, operation="POST /embed"))


def test_why_slow_lists_the_calls_between_services(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "why")

    calls = next(frame.value for frame in test.dataframe if "call" in frame.value)
    assert list(calls["call"]) == ["ranker \u2192 model"]
    assert list(calls.columns) == ["call", "excess_ms", "share"]


def test_trace_says_its_http_status_and_where_it_failed(visit: Visit, seeded: Seeded) -> None:
    failed = visit(seeded.url, "trace", trace=seeded.trace_ids[13])
    well = visit(seeded.url, "trace", trace=seeded.trace_ids[14])

    assert (figure(failed, "Status"), figure(failed, "HTTP")) == ("error", "500")
    assert "1 span with an error" in words(failed)
    assert (figure(well, "Status"), figure(well, "HTTP")) == ("ok (unset)", "200")
    assert "with an error" not in words(well)


@pytest.mark.parametrize("page", POPULATION_PAGES)
def test_condition_that_is_no_sql_shows_the_database_message(visit: Visit, seeded: Seeded, page: str) -> None:
    test = visit(seeded.url, page, where="no_such_column = 1")

    assert not test.exception
    assert "no_such_column" in words(test)


def test_overview_counts_every_request_and_every_error(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "overview")

    assert figure(test, "Requests") == "600"
    assert figure(test, "Errors") == "1.17 %"  # 7 of 600: every 97th from the 14th
    assert "queue" in words(test)


def test_overview_percentile_is_that_of_the_store(visit: Visit, seeded: Seeded) -> None:
    with connect(seeded.url) as client:
        p50 = client.sql("select quantile_cont(duration_ms, 0.5) from requests").rows[0][0]

    test = visit(seeded.url, "overview")

    assert figure(test, "p50") == f"{p50:.1f} ms"


def test_few_requests_get_no_p99(visit: Visit, seeded: Seeded) -> None:
    with connect(seeded.url) as client:
        first, fiftieth = client.sql(
            "select min(start_time), max(start_time) from (from requests order by start_time limit 50)"
        ).rows[0]

    test = visit(seeded.url, "overview", since=f"{first.isoformat()}Z", until=f"{fiftieth.isoformat()}Z")

    assert figure(test, "Requests") == "49"
    assert figure(test, "p99") == "\u2013"
    assert "too few requests" in words(test).lower()


def test_why_slow_names_the_planted_stage_first(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "why")

    split = next(frame.value for frame in test.dataframe if "typical_ms" in frame.value)
    assert split["stage"].iloc[0] == "queue"
    assert split["excess_ms"].iloc[0] > 50


def test_why_slow_of_too_few_requests_says_why(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "why", window="5m")

    assert not test.exception
    assert "cannot be split" in words(test)
    assert "too few requests" in words(test).lower()


def test_slow_requests_come_slowest_first(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "requests")

    rows = test.dataframe[0].value
    assert len(rows) == 25
    assert rows["duration_ms"].is_monotonic_decreasing


def test_filters_of_slow_requests_come_from_the_address(visit: Visit, seeded: Seeded) -> None:
    test = visit(
        seeded.url, "requests", status="error", operation="POST /predict", sort="start_time", order="asc"
    )

    rows = test.dataframe[0].value
    assert set(rows["status"]) == {"error"}
    assert set(rows["operation"]) == {"POST /predict"}
    assert rows["start"].is_monotonic_increasing


def test_second_sheet_begins_where_the_first_ended(visit: Visit, seeded: Seeded) -> None:
    first = visit(seeded.url, "requests").dataframe[0].value
    second = visit(seeded.url, "requests", sheet="2").dataframe[0].value

    assert second["duration_ms"].iloc[0] <= first["duration_ms"].iloc[-1]
    assert not set(first["trace_id"]) & set(second["trace_id"])


def test_sheet_beyond_the_last_shows_the_last(visit: Visit, seeded: Seeded) -> None:
    page = visit(seeded.url, "requests", sheet="399")

    assert len(page.dataframe[0].value) == 25
    assert any("sheet 24 of 24" in text.value for text in page.markdown)


def test_choosing_a_service_writes_the_address(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "overview", operation="POST /embed")

    test.selectbox(key="in:service").select("ranker").run()

    assert test.query_params == {"service": "ranker"}  # the operation belonged to another choice


def test_choosing_a_window_writes_the_address_and_forgets_the_custom_one(
    visit: Visit, seeded: Seeded
) -> None:
    test = visit(seeded.url, "overview", since="2026-11-30T12:05:00Z")

    test.segmented_control(key="in:window").set_value("15m").run()

    assert test.query_params == {"window": "15m"}
    assert int(figure(test, "Requests")) < 400


def test_unknown_trace_is_a_sentence_and_no_traceback(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "trace", trace="f" * 32)

    assert not test.exception
    assert "not in the store" in words(test)


def test_trace_ledger_sums_to_its_duration(visit: Visit, seeded: Seeded) -> None:
    with connect(seeded.url) as client:
        duration_ms = client.trace(seeded.trace_ids[3])["duration_ns"] / 1e6

    test = visit(seeded.url, "trace", trace=seeded.trace_ids[3])

    ledger = next(frame.value for frame in test.dataframe if "self_ms" in frame.value)
    assert ledger["self_ms"].sum() == pytest.approx(duration_ms, abs=1e-6)


def test_attribute_text_reaches_the_page_as_it_is(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "trace", trace=seeded.trace_ids[3])

    attributes = next(
        frame.value
        for frame in test.dataframe
        if "name" in frame.value and "user.note" in set(frame.value["name"])
    )
    assert SCRIPT in set(attributes["value"])
    assert SCRIPT not in words(test)


def test_console_answers_a_question_of_the_address(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "sql", q="select count(*) as n from requests")

    assert test.dataframe[0].value["n"].iloc[0] == 600
    assert "1 row" in words(test)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_question_that_can_be_asked(seeded: Seeded, example: str) -> None:
    with connect(seeded.url) as client:
        answer = client.sql(EXAMPLES[example], limit=10)

    assert answer.columns


def test_console_shows_two_columns_of_one_name(visit: Visit, seeded: Seeded) -> None:
    page = visit(seeded.url, "sql", q="select 1 as a, 2 as a, interval 1 day as took")

    assert not page.exception
    assert list(page.dataframe[0].value.columns) == ["a", "a_1", "took"]


def test_console_lists_the_columns_of_every_view(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "sql")

    assert [expander.label for expander in test.expander] == list(VIEWS)
    columns = [set(frame.value["column"]) for frame in test.dataframe if "column" in frame.value]
    assert len(columns) == len(VIEWS)
    assert "duration_ms" in columns[0]


def test_console_shows_the_database_message(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "sql", q="select nothing from nowhere")

    assert not test.exception
    assert "nowhere" in words(test)


def test_console_says_that_rows_were_held_back(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "sql", q="select * from spans")

    assert "Only the first 2,000 rows" in words(test)


def test_example_fills_the_editor_and_runs(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "sql")

    test.selectbox(key="example").select("requests: the ten slowest").run()

    assert test.query_params["q"].startswith("select trace_id")
    assert len(test.dataframe[0].value) == 10
