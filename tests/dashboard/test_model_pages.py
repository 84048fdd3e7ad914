"""Inference, Dependencies, Compare and SQL as Streamlit runs them, on requests to two versions of a model."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_analyzer import connect
from tailscope_dashboard._figures import MISSING
from tests.dashboard.test_pages import Visit, figure, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamlit.testing.v1 import AppTest

    from tests.dashboard.conftest import Seeded

PAGES = ["inference", "dependencies", "compare"]


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Visit:
    return Visit(monkeypatch)


@pytest.fixture(scope="module")
def opened(assistants: str) -> Iterator[Callable[[str], AppTest]]:
    """Open a page as a link without parameters does, once for all tests that only look at it."""
    with pytest.MonkeyPatch.context() as patch:
        visit = Visit(patch)

        @cache
        def open_once(page: str) -> AppTest:
            return visit(assistants, page)

        yield open_once


def table(test: AppTest, *columns: str) -> Any:
    """Return the first table that has these columns."""
    return next(frame.value for frame in test.dataframe if set(columns) <= set(frame.value.columns))


@pytest.mark.parametrize("page", PAGES)
def test_empty_store_says_how_to_send_the_first_trace(visit: Visit, empty_collector: str, page: str) -> None:
    assert "Send your first trace" in words(visit(empty_collector, page))


@pytest.mark.parametrize("page", PAGES)
def test_selection_without_requests_says_so(visit: Visit, assistants: str, page: str) -> None:
    test = visit(assistants, page, since="2027-01-01T00:00:00Z", until="2027-01-02T00:00:00Z")

    assert not test.exception
    assert "Widen the window or clear the filters" in words(test)


def test_inference_gives_the_figures_of_the_store(opened: Callable[[str], AppTest], assistants: str) -> None:
    with connect(assistants) as client:
        p50, tokens = client.sql("select quantile_cont(ttft_ms, 0.5), sum(output_tokens) from requests").rows[
            0
        ]

    test = opened("inference")

    assert not test.exception
    assert figure(test, "TTFT p50") == f"{p50:.1f} ms"
    assert figure(test, "Cold starts") == "12"
    versions = table(test, "version", "cold_requests")
    assert versions[["version", "requests", "cold_requests"]].to_numpy().tolist() == [
        ["1", 300, 0],
        ["2", 300, 12],
    ]
    assert versions["output_tokens"].sum() == tokens


def test_inference_holds_gpu_time_against_wall_time(opened: Callable[[str], AppTest]) -> None:
    spans = table(opened("inference"), "gpu_share")

    assert spans[["service", "operation", "spans"]].to_numpy().tolist() == [["model", "forward", 600]]
    assert 0.7 < spans["gpu_share"].iloc[0] < 0.95


def test_cold_requests_are_too_few_for_a_p99(opened: Callable[[str], AppTest]) -> None:
    starts = table(opened("inference"), "kind")

    assert starts[["kind", "requests"]].to_numpy().tolist() == [["cold", 12], ["warm, or not said", 588]]
    assert starts["p50_ms"].iloc[0] > 900  # the time it takes to load the weights
    assert starts["p99_ms"].isna().tolist() == [True, False]


def test_sections_without_data_name_the_attributes_that_would_fill_them(visit: Visit, seeded: Seeded) -> None:
    said = words(visit(seeded.url, "inference"))

    for attribute in (
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.usage.output_tokens",
        "gpu.time_ms",
        "cold_start",
    ):
        assert attribute in said
    assert "No request says in how large a batch" not in said


def test_few_requests_get_no_percentile_of_their_tokens(visit: Visit, assistants: str) -> None:
    test = visit(assistants, "inference", where="cold_start")

    assert figure(test, "TTFT p50") != MISSING
    assert figure(test, "TTFT p99") == MISSING
    assert "Too few requests for a load curve" in words(test)


def test_dependencies_count_the_calls_of_each_edge(opened: Callable[[str], AppTest]) -> None:
    calls = table(opened("dependencies"), "caller", "callee")
    assert calls[["caller", "callee", "calls"]].to_numpy().tolist() == [
        ["features", "postgres", 1200],  # once for each request to version 1, three times to version 2
        ["model", "features", 1200],
        ["gateway", "model", 600],
        ["gateway", "redis", 600],
        ["gateway", "sessions", 600],
    ]
    assert calls["gap_ms"].round(2).to_list()[1:3] == [0.8, 2.5]
    assert calls["gap_ms"].isna().to_list() == [True, False, False, True, False]


def test_edge_of_a_link_shows_its_operations(visit: Visit, assistants: str) -> None:
    test = visit(assistants, "dependencies", caller="model", callee="features")

    assert figure(test, "Calls") == "1,200"
    assert figure(test, "Mean gap") == "0.800 ms"
    assert table(test, "operation", "gap_ms")["operation"].to_list() == ["lookup"]


def test_service_of_a_link_shows_both_its_sides(visit: Visit, assistants: str) -> None:
    test = visit(assistants, "dependencies", node="gateway")

    assert figure(test, "Answered") == "600"
    assert figure(test, "Errors") == "1.33 %"  # 8 of 600: every 83rd from the 8th
    assert "**Calls**" in words(test)
    assert "Called by" not in words(test)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"node": "nope"}, "There is no such service in this selection."),
        ({"caller": "a", "callee": "b"}, "There is no such call in this selection."),
    ],
)
def test_what_a_link_names_and_is_not_here_is_said(
    visit: Visit, assistants: str, parameters: dict[str, str], said: str
) -> None:
    assert said in words(visit(assistants, "dependencies", **parameters))


def test_of_many_requests_stretches_are_read(
    visit: Visit, assistants: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope_dashboard._data.sample.__kwdefaults__", {"most": 100})

    map_of_services, inference = visit(assistants, "dependencies"), visit(assistants, "inference")

    calls = table(map_of_services, "caller", "callee").set_index("callee")["calls"]
    assert calls["model"] == pytest.approx(600, rel=0.02)
    assert "600 requests, from 3 stretches with one in 6 requests" in words(map_of_services)
    assert table(inference, "gpu_share")["spans"].iloc[0] == pytest.approx(600, rel=0.02)
    assert "for the longest lines, choose a window of up to 10,000 requests" in words(inference)


def test_compare_proposes_the_two_newest_versions(opened: Callable[[str], AppTest]) -> None:
    test = opened("compare")

    assert not test.exception
    assert test.selectbox(key="in:baseline").value == "1"
    assert test.selectbox(key="in:candidate").value == "2"
    assert "n = 300 in the baseline, 300 in the candidate" in words(test)
    stages = table(test, "name", "excess_ms").set_index("name")
    assert stages.loc["features other", "calls_ms"] > 1  # looked up three times instead of once
    assert stages.loc["model inference (gpu)", "excess_ms"] > 10


def test_sides_are_swapped_in_the_address_and_then_come_from_it(visit: Visit, assistants: str) -> None:
    test = visit(assistants, "compare", percentile="95")
    next(button for button in test.button if button.label == "Swap").click().run()

    assert test.query_params == {"baseline": "version=2", "candidate": "version=1", "percentile": "95"}
    assert test.selectbox(key="in:candidate").value == "1"
    assert table(test, "name", "excess_ms").set_index("name").loc["model inference (gpu)", "excess_ms"] < -10


def test_windows_are_compared_as_halves_until_the_link_says_others(visit: Visit, assistants: str) -> None:
    test = visit(assistants, "compare", compare="version", baseline="version=2")
    test.segmented_control(key="in:compare").set_value("time").run()

    assert test.query_params == {"compare": "time"}  # what was chosen there means nothing here
    assert "n = 300 in the baseline, 300 in the candidate" not in words(test)
    assert list(table(test, "number")["number"])[:2] == ["p50", "p90"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"compare": "condition"}, "Write two conditions that differ."),
        ({"compare": "version", "baseline": "version=2"}, "Choose two that differ: version 2 is on one side"),
        ({"compare": "http_status"}, "No request of this selection says its http status."),
        ({"baseline": "a", "candidate": "no_such = 1"}, "no_such"),
        (
            {"baseline": "version=1", "candidate": "version=3"},
            "Nothing to compare: the candidate has no requests",
        ),
    ],
)
def test_what_cannot_be_compared_is_said(
    visit: Visit, assistants: str, parameters: dict[str, str], said: str
) -> None:
    test = visit(assistants, "compare", **parameters)

    assert not test.exception
    assert said in words(test)


def test_console_draws_what_the_link_says(visit: Visit, assistants: str) -> None:
    query = "select version, count(*) as n, avg(duration_ms) as mean_ms from requests group by all order by 1"

    test = visit(assistants, "sql", q=query, chart="bars", y="n")

    assert "n = 2 rows." in words(test)
    assert [test.selectbox(key=f"in:{name}").value for name in ("x", "y", "by")] == ["version", "n", None]
    test.segmented_control(key="in:chart").set_value("table").run()
    assert "chart" not in test.query_params


def test_console_answer_without_rows_says_so(visit: Visit, assistants: str) -> None:
    assert "nothing fits it" in words(visit(assistants, "sql", q="from requests where false", chart="line"))
