"""Overview, Why slow and Slow requests as Streamlit runs them: targets, causes, what if, filters, live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest
from streamlit.testing.v1 import AppTest

from tailscope_analyzer import connect
from tailscope_collector import Collector, Security
from tailscope_dashboard import _live as live
from tests.dashboard.test_pages import Visit, figure, words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.dashboard.conftest import Seeded


@pytest.fixture
def visit(monkeypatch: pytest.MonkeyPatch) -> Visit:
    return Visit(monkeypatch)


@pytest.fixture(scope="module")
def why(seeded: Seeded) -> Iterator[AppTest]:
    """Open Why slow once, to be read."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield Visit(monkeypatch)(seeded.url, "why")


def table(test: AppTest, column: str) -> Any:
    """Return the first table with this column."""
    return next(frame.value for frame in test.dataframe if column in frame.value)


def links(test: AppTest, label: str) -> list[dict[str, str]]:
    """Return the parameters of the links with this label."""
    found: list[Any] = [link.proto for link in test.get("page_link")]
    return [dict(parse_qsl(link.query_string)) for link in found if link.label == label]


def test_target_of_the_address_is_held_against_the_p99(visit: Visit, seeded: Seeded) -> None:
    with connect(seeded.url) as client:
        over = client.sql("select count(*) from requests where duration_ms > 100").rows[0][0]

    test = visit(seeded.url, "overview", target="voice")

    assert figure(test, "Over 100.0 ms") == f"{over / 6:.1f} %"
    assert test.selectbox(key="in:target").value == "voice"
    judged = table(test, "target")["target"].dropna()  # one operation has too few requests for a p99
    assert [text[0] for text in judged] == ["▲"]


def test_without_a_target_that_can_be_read_nothing_is_judged(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "overview", target="soon")

    assert not [metric for metric in test.metric if metric.label.startswith("Over")]
    assert "target" not in table(test, "error_share")


def test_cause_says_how_much_how_sure_and_what_to_try(why: AppTest) -> None:
    said = words(why)

    assert "Retries" in said
    assert "of the excess" in said
    assert "The data says so." in said
    assert "Retry in one place only" in said


def test_cause_leads_to_its_sql(why: AppTest, seeded: Seeded) -> None:
    question = links(why, "SQL")[-1]["q"]  # the first one is in the bar

    with connect(seeded.url) as client:
        assert client.sql(question).rows


def test_cause_leads_to_its_requests_and_the_list_back_to_all(
    why: AppTest, visit: Visit, seeded: Seeded
) -> None:
    traces = links(why, "All 5 in the list")[0]["traces"]

    test = visit(seeded.url, "requests", traces=traces)

    assert set(table(test, "trace_id")["trace_id"]) == set(traces.split(","))
    next(button for button in test.button if button.label == "Show all").click().run()
    assert len(test.dataframe[0].value) == 25
    assert "traces" not in test.query_params


def test_groups_of_percentiles_without_a_bar_are_named(why: AppTest) -> None:
    assert "Too few requests for a bar: p99.5\u201399.9, p99.9\u2013100." in words(why)


def test_attributes_say_so_where_none_stands_out() -> None:
    def page() -> None:
        from tailscope_dashboard import _effects_panel
        from tests.dashboard.reports import report

        _effects_panel.attributes(report())
        _effects_panel.changes(report())

    test = AppTest.from_function(page).run()

    assert "None stands out" in words(test)
    assert not test.dataframe


def test_what_if_suggests_before_it_is_asked(why: AppTest) -> None:
    assert table(why, "saved_ms")["change"].iloc[0].endswith("at 50 %")
    assert not [metric for metric in why.metric if "predicted" in metric.label]


def test_moved_slider_is_in_the_address_and_predicts(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "why")

    test.slider(key="in:whatif-0").set_value(0).run()

    assert test.query_params["change"] == "ranker queue=0"
    assert float(figure(test, "p99, predicted").split()[0]) < 150
    assert list(table(test, "saved_ms")["change"]) == ["ranker queue removed"]


def test_change_that_cannot_be_predicted_leaves_the_page_as_it_is(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "why", replicas="2", split="share")

    assert not test.exception
    assert "cannot be predicted" in words(test)
    assert test.segmented_control(key="in:split").value == "share"


def test_requests_of_a_stage_spend_half_of_their_time_in_it(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "requests", stage="queue", instance="ranker-0", version="v2", min_ms="60")

    found = table(test, "trace_id")
    assert set(found["top_stage"]) == {"queue"}
    assert min(found["top_ms"] / found["duration_ms"]) >= 0.5
    assert min(found["duration_ms"]) >= 60


def test_instance_that_is_not_there_stays_in_its_control(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "requests", instance="ranker-9")

    assert "No request passes these filters" in words(test)
    assert test.selectbox(key="in:instance").value == "ranker-9"


def test_services_have_a_card_each_and_a_click_chooses_one() -> None:
    def page() -> None:
        from datetime import UTC, datetime

        import polars as pl

        from tailscope_dashboard import _service_cards
        from tailscope_dashboard._scope import Scope

        rows = pl.DataFrame(
            {
                "service": ["<b>large</b>", "small"],
                "requests": [500, 40],
                "error_share": [0.01, 0.0],
                "p50_ms": [5.0, 1.0],
                "p95_ms": [7.0, None],
                "p99_ms": [8.0, None],
            }
        )
        lines = pl.DataFrame({"service": ["<b>large</b>"] * 2, "p95_ms": [6.0, 7.0]})
        begin, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        _service_cards.cards(rows, lines, Scope(None, None, None, begin, end), target_ms=5.0)

    test = AppTest.from_function(page).run()

    assert [(metric.value, metric.delta) for metric in test.metric] == [
        ("8.00 ms", "3.00 ms over target"),
        ("\u2013", ""),
    ]
    assert [text.value for text in test.text] == ["<b>large</b>", "small"]
    test.button(key="choose-service-1").click().run()
    assert test.query_params == {"service": "small"}


def test_live_mode_is_in_the_address_and_asks_anew(
    visit: Visit, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[float] = []
    monkeypatch.setattr(live, "_clock", lambda: turns.append(live.EVERY_S))
    test = visit(seeded.url, "requests")
    assert turns == []

    test.toggle(key="in:live").set_value(True).run()

    assert test.query_params == {"live": "1"}
    assert turns == [10.5]


def test_window_that_does_not_move_cannot_be_live(visit: Visit, seeded: Seeded) -> None:
    test = visit(seeded.url, "requests", live="1", since="2026-11-30T12:05:00Z")

    assert test.toggle(key="in:live").disabled
    assert test.toggle(key="in:live").value is False


def test_collector_that_wants_a_token_says_how_to_give_it(
    visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TAILSCOPE_TOKEN_FILE", "TAILSCOPE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    token = tmp_path / "token"
    token.write_text("query-0123456789abcdef")
    token.chmod(0o600)
    with Collector(tmp_path / "data", security=Security(query_token_file=str(token))) as guarded:
        test = visit(guarded.url, "why")

    assert not test.exception
    assert "does not let this dashboard ask" in words(test)
    assert "TAILSCOPE_TOKEN_FILE" in words(test)
