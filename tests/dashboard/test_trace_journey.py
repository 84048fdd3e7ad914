"""What a reader does with one trace, in real Chromium: from the slow request to its batch and a member."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tailscope_dashboard._child import collector_on
from tests.dashboard.eventful import Eventful, post_eventful
from tests.dashboard.processes import dashboard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

ROW = 24
HEADER = 36  # the height of a table's header, in Streamlit


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Eventful]]:
    with collector_on(tmp_path_factory.mktemp("eventful")) as url:
        found = post_eventful(url)
        with dashboard("--url", url) as app:
            yield app, found


def settled(page: Page) -> None:
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
    )


def canvas_of(page: Page, place: int = 0) -> tuple[Locator, int]:
    """Return a waterfall that is drawn, and where its rows begin."""
    canvas = page.locator(".scroll canvas[data-top]").nth(place)
    canvas.wait_for()
    settled(page)
    return canvas, int(canvas.get_attribute("data-top") or 0)


def rows_shown(page: Page) -> float:
    box = page.locator(".scroll").first.bounding_box()
    assert box is not None
    return box["height"]


def test_one_trace_is_looked_at_from_all_sides(page: Page, shown: tuple[str, Eventful]) -> None:
    app, found = shown
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{app}/trace?trace={found.slow}")
    canvas, top = canvas_of(page)
    legend = page.locator(".legend").first.inner_text()
    for words in ("waiting in a queue", "between two services", "stopped by the garbage collector", "retry"):
        assert words in legend

    canvas.hover(position={"x": 150, "y": top + 6 * ROW + 10})
    tip = page.locator(".tip").first
    tip.wait_for()
    for words in ("GPU 22.8 ms", "garbage collection for 6 ms", "moved by 30 ms", "error"):
        assert words in tip.inner_text()

    page.locator(".scroll").first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**span=**")
    page.locator(".st-key-span").get_by_text("tokenize", exact=True).first.wait_for()
    assert canvas.evaluate("node => node.getRootNode().activeElement?.className") == "scroll"

    page.get_by_text("Recorded", exact=True).click()
    page.wait_for_url("**times=recorded**")
    canvas_of(page)
    canvas.hover(position={"x": 150, "y": top + 5 * ROW + 10})
    page.locator(".tip", has_text="from 66 ms").wait_for()

    page.get_by_text("Flame", exact=True).click()
    page.wait_for_url("**view=flame**")
    flame, flame_top = canvas_of(page)
    flame.hover(position={"x": 300, "y": flame_top + 2 * 22 + 10})
    page.locator(".tip", has_text="90 ms on the critical path, 64.3 %").wait_for()
    page.get_by_role("button", name="All own time").click()
    page.get_by_role("button", name="Critical path").wait_for()

    assert errors == []


def test_batch_is_followed_to_a_member_and_the_trace_is_taken_along(
    page: Page, shown: tuple[str, Eventful], tmp_path: Path
) -> None:
    app, found = shown
    page.goto(f"{app}/trace?trace={found.slow}&beside=typical")
    canvas_of(page, 1)
    page.get_by_text("Both by stage").wait_for()

    links = page.locator(".st-key-span").get_by_test_id("stDataFrame").nth(1)
    links.click(position={"x": 60, "y": HEADER + 12})
    page.wait_for_url(f"**trace={found.batch}**")
    page.get_by_text("Bound to 3 spans of other traces").wait_for()
    settled(page)
    members = page.locator(".st-key-span").get_by_test_id("stDataFrame").nth(1)
    members.click(position={"x": 60, "y": HEADER + 12})
    page.wait_for_url(re.compile(f"trace={found.member}"))
    page.get_by_text("Bound to 1 span of other traces").wait_for()

    page.get_by_role("button", name="Download", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("button", name="OTLP JSON").click()
    file = tmp_path / "trace.json"
    download.value.save_as(file)

    assert json.loads(file.read_text())["resourceSpans"]
    assert download.value.suggested_filename == f"{found.member}.otlp.json"
