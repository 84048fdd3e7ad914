"""What a reader does, in real Chromium, on a real collector: from 'p99 is bad' to the span, and links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import expect

from tailscope_analyzer import connect
from tailscope_dashboard._sqltext import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

    from tests.dashboard.conftest import Seeded

pytestmark = pytest.mark.browser

ROW = 24  # the height of a waterfall's row, and
AXIS = 68  # of its time axis and the lanes of the critical path and of events, in axis.js
HEADER = 36  # the height of a table's header and of its rows, in Streamlit


@pytest.fixture
def slow_trace(seeded: Seeded) -> str:
    with connect(seeded.url) as client:
        rows = client.sql("select trace_id from requests order by duration_ms desc limit 1").rows
    return str(rows[0][0])


@pytest.fixture
def failed_trace(seeded: Seeded) -> str:
    with connect(seeded.url) as client:
        rows = client.sql(
            "select trace_id from requests where status = 'error' order by start_time limit 1"
        ).rows
    return str(rows[0][0])


@pytest.fixture
def other(browser: Browser) -> Iterator[Page]:
    """Open a colleague's browser, which shares nothing with the first one."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="America/New_York")
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def open_page(page: Page, url: str) -> None:
    page.goto(url)
    page.locator(".st-key-controls").wait_for()
    settle(page)


def settle(page: Page) -> None:
    """Wait until Streamlit has drawn what it was asked for."""
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
    )


def figures(page: Page) -> dict[str, str]:
    page.get_by_test_id("stMetric").first.wait_for()
    settle(page)
    metrics = page.get_by_test_id("stMetric").all()
    return {
        metric.get_by_test_id("stMetricLabel").inner_text(): metric.get_by_test_id(
            "stMetricValue"
        ).inner_text()
        for metric in metrics
    }


def parameters(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def shared_link(page: Page) -> str:
    page.get_by_role("button", name="Share").click()
    link = page.locator("[data-testid=stPopoverBody] code").inner_text()
    page.keyboard.press("Escape")
    return link


def click_at(target: Locator, *, x: float, y: float) -> None:
    target.click(position={"x": x, "y": y})


def waterfall(page: Page) -> Locator:
    canvas = page.locator(".scroll canvas")
    canvas.wait_for()
    return canvas


def drag(page: Page, chart: Locator, first: float, last: float) -> None:
    """Drag over a part of a chart, by fractions of its width."""
    box = chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] * 0.5
    page.mouse.move(box["x"] + box["width"] * first, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * last, middle, steps=8)
    page.mouse.up()


def test_from_overview_over_a_cause_to_a_span_and_to_sql(page: Page, app: str) -> None:
    open_page(page, app)
    assert figures(page)["Requests"] == "600"
    page.get_by_text("waiting in the queue of ranker").wait_for()

    drag(page, page.get_by_test_id("stVegaLiteChart").first, 0.4, 0.55)
    page.wait_for_url(re.compile("since=.*until="))
    settle(page)
    assert int(figures(page)["Requests"]) < 300
    page.get_by_text("Custom", exact=True).wait_for()

    page.get_by_role("link", name="See why").click()
    page.wait_for_url("**/why?**")
    page.get_by_text("cannot be split").wait_for()  # too few for a p99, but
    page.get_by_role("combobox", name="Percentile").click()
    page.get_by_role("option", name="p90").click()
    page.get_by_text("From the typical request to the tail").wait_for()
    settle(page)

    cause = page.locator(".st-key-card-cause-0")
    cause.get_by_text("Retries", exact=True).wait_for()
    cause.get_by_role("link", name="SQL").click()
    page.wait_for_url("**/sql?q=**")
    page.get_by_text(re.compile(r"\d rows?,|1 row")).first.wait_for()
    page.go_back()
    page.wait_for_url("**/why?**percentile=90**")
    settle(page)

    cause.get_by_role("link", name="in the list").click()
    page.wait_for_url("**/requests?**traces=**")
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    page.get_by_text("that the link names").wait_for()
    settle(page)

    click_at(table, x=90, y=HEADER + 12)
    page.wait_for_url("**/trace?**")
    canvas = waterfall(page)
    settle(page)

    click_at(canvas, x=150, y=AXIS + 3 * ROW + 10)  # the entry, auth, preprocess, queue
    page.wait_for_url("**span=**")
    page.locator(".st-key-span").get_by_text("queue", exact=True).first.wait_for()


def test_slider_moved_by_keyboard_predicts_and_is_in_the_link(page: Page, app: str) -> None:
    open_page(page, f"{app}/why")
    slider = page.get_by_role("slider").first
    slider.focus()

    slider.press("Home")

    page.wait_for_url("**change=ranker**queue**")
    page.get_by_text("p99, predicted").wait_for()
    settle(page)
    assert parameters(page)["change"] == "ranker queue=0"


def test_slowest_request_of_the_report_opens_its_trace(page: Page, app: str, slow_trace: str) -> None:
    open_page(page, f"{app}/why")

    page.get_by_role("link", name=slow_trace).click()

    page.wait_for_url(f"**trace={slow_trace}**")
    waterfall(page)


def test_link_shows_a_colleague_the_same_view(page: Page, other: Page, app: str) -> None:
    open_page(page, app)
    page.get_by_role("combobox", name="Operation").click()
    page.get_by_role("option", name="POST /embed").click()
    page.wait_for_url("**operation=**")
    page.get_by_text("15 min", exact=True).click()
    page.wait_for_url("**window=15m**")
    settle(page)
    link = shared_link(page)

    open_page(other, link)

    assert "window" not in parse_qs(urlsplit(link).query)  # it would move with the newest request
    shown = figures(page)
    # A page draws its figures one by one.
    expect(other.get_by_test_id("stMetric")).to_have_count(len(shown), timeout=30_000)
    assert figures(other) == shown
    assert other.get_by_role("combobox", name="Operation").input_value() == "POST /embed"


def test_percentile_goes_from_page_to_page_and_into_the_link(page: Page, app: str) -> None:
    open_page(page, f"{app}/?percentile=95")
    page.get_by_text("p95 is", exact=False).first.wait_for()

    page.get_by_role("link", name="See why").click()
    page.wait_for_url("**/why?**")
    page.get_by_text("From the typical request to the tail").wait_for()
    settle(page)

    assert parameters(page)["percentile"] == "95"
    assert parse_qs(urlsplit(shared_link(page)).query)["percentile"] == ["95"]
    page.get_by_role("link", name="All slow requests").click()
    page.wait_for_url("**/requests?**percentile=95**")


def test_link_to_the_failed_span_opens_it(page: Page, app: str, failed_trace: str) -> None:
    open_page(page, f"{app}/trace?trace={failed_trace}")
    page.get_by_text("1 span with an error").wait_for()

    page.get_by_role("button", name=re.compile("span [0-9a-f]{16}")).click()

    page.wait_for_url("**span=**")
    page.locator(".st-key-span").get_by_text("POST /", exact=False).first.wait_for()


def test_link_to_a_span_opens_it(page: Page, other: Page, app: str, slow_trace: str) -> None:
    open_page(page, f"{app}/trace?trace={slow_trace}")
    click_at(waterfall(page), x=150, y=AXIS + 2 * ROW + 10)
    page.wait_for_url("**span=**")
    settle(page)

    open_page(other, shared_link(page))

    assert other.locator(".st-key-span").get_by_text("preprocess", exact=True).first.is_visible()


def test_back_button_restores_the_view_before(page: Page, app: str) -> None:
    open_page(page, app)
    page.get_by_text("15 min", exact=True).click()
    page.wait_for_url("**window=15m**")
    settle(page)

    page.go_back()
    settle(page)

    page.wait_for_function("() => document.querySelector('[data-testid=stMetric]').innerText.includes('600')")
    assert "window" not in parameters(page)


def test_keyboard_moves_and_selects_in_the_waterfall(page: Page, app: str, slow_trace: str) -> None:
    open_page(page, f"{app}/trace?trace={slow_trace}")
    waterfall(page)
    settle(page)

    page.locator(".scroll").focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")

    page.wait_for_url("**span=**")
    page.locator(".st-key-span").get_by_text("auth", exact=True).first.wait_for()


def test_folding_and_finding_in_the_waterfall(page: Page, app: str, slow_trace: str) -> None:
    open_page(page, f"{app}/trace?trace={slow_trace}")
    waterfall(page)
    settle(page)
    full = page.locator(".scroll").bounding_box()

    page.locator(".find").fill("queue")
    page.get_by_text("1 found").wait_for()
    page.locator("[data-do=collapse]").click()

    folded = page.locator(".scroll").bounding_box()
    assert full is not None
    assert folded is not None
    assert full["height"] - folded["height"] == ROW  # the call to the model has one child


def test_hover_says_what_a_span_is(page: Page, app: str, slow_trace: str) -> None:
    open_page(page, f"{app}/trace?trace={slow_trace}")
    canvas = waterfall(page)
    settle(page)

    canvas.hover(position={"x": 150, "y": AXIS + 3 * ROW + 10})

    tip = page.locator(".tip")
    tip.wait_for()
    assert "queue" in tip.inner_text()
    assert "on the critical path" in tip.inner_text()


@pytest.mark.parametrize("view", ["trace", "sql"])
def test_script_in_an_attribute_stays_text(page: Page, app: str, failed_trace: str, view: str) -> None:
    question = f"select status_message, attributes from spans where trace_id = {literal(failed_trace)}"  # noqa: S608
    query = urlencode({"trace": failed_trace} if view == "trace" else {"q": question})

    open_page(page, f"{app}/{view}?{query}")
    page.get_by_test_id("stDataFrame").first.wait_for()
    if view == "trace":
        waterfall(page).hover(position={"x": 150, "y": AXIS + 10})
    settle(page)

    assert page.evaluate("() => window.injected") is None
    assert page.locator("img[src=x]").count() == 0


def test_times_are_utc_wherever_the_reader_sits(other: Page, app: str) -> None:
    open_page(other, app)

    assert "2026-11-30 12:00:" in other.get_by_text(re.compile("UTC · 30 min")).inner_text()


def test_pages_fetch_nothing_from_elsewhere_and_raise_no_error(page: Page, app: str, slow_trace: str) -> None:
    hosts: set[str | None] = set()
    errors: list[str] = []
    page.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    page.on("pageerror", lambda error: errors.append(str(error)))

    for path in ("", "why", "requests", f"trace?trace={slow_trace}", "sql?q=select+1"):
        open_page(page, f"{app}/{path}")

    assert hosts <= {"127.0.0.1", None}
    assert errors == []


def test_sentence_of_the_overview_is_as_wide_as_a_phone(page: Page, app: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_page(page, f"{app}/")
    page.get_by_role("link", name="See why").wait_for()

    sentence = page.locator(".st-key-headline .stText").first.bounding_box()

    assert sentence is not None
    assert sentence["width"] > 280
