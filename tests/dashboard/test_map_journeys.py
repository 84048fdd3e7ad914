"""The map of services, Compare and the editor of SQL in real Chromium, by mouse and by keyboard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.dashboard.test_journeys import drag, open_page, parameters, settle

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def test_from_the_map_to_an_edge_by_keyboard(page: Page, app: str) -> None:
    open_page(page, f"{app}/dependencies")
    edge = page.get_by_role("button", name="ranker to model: 600 calls")
    edge.focus()
    page.keyboard.press("Enter")

    page.get_by_text("Mean gap", exact=True).wait_for()
    assert parameters(page) == {"caller": "ranker", "callee": "model"}
    expect(edge).to_have_attribute("aria-pressed", "true")
    expect(edge).to_be_focused()  # the page was drawn anew; the reader goes on from here

    page.get_by_role("button", name="model: 600 requests").click()
    page.get_by_text("Time of its own", exact=True).wait_for()
    assert parameters(page) == {"node": "model"}


def test_from_a_slow_patch_to_what_moved(page: Page, app: str) -> None:
    open_page(page, f"{app}/compare?compare=time")
    # The slow patch lies between 40 and 55 % of the half hour.
    drag(page, page.get_by_test_id("stVegaLiteChart").first, 0.4, 0.55)

    page.get_by_text("Slower: ranker takes").wait_for()
    asked = parameters(page)
    assert asked["compare"] == "time"
    assert asked["baseline"].split("/")[1] == asked["candidate"].split("/")[0]
    page.get_by_role("link", name="Why the candidate's tail is slow").click()
    page.wait_for_url("**/why?**")
    assert parameters(page)["since"] == asked["candidate"].split("/")[0]


def test_a_question_is_completed_run_drawn_and_kept(page: Page, app: str, tmp_path: Path) -> None:
    open_page(page, f"{app}/sql")
    editor = page.get_by_role("textbox", name="Question in SQL")
    editor.click()
    page.keyboard.type("select operation, count(*) as n from requ")
    page.get_by_role("option", name="requests").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.type(" as r where r.dura")
    page.get_by_role("option", name="duration_ms").wait_for()
    page.keyboard.press("Enter")
    page.keyboard.type(" > 0 group by all")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    page.get_by_text("2 rows").wait_for()
    question = "select operation, count(*) as n from requests as r where r.duration_ms > 0 group by all"
    assert parameters(page)["q"] == question

    page.get_by_role("radio", name="Bars").click()
    page.get_by_role("img", name="Chart of n by operation").or_(
        page.get_by_text("n = 2 rows.")
    ).first.wait_for()
    assert parameters(page)["chart"] == "bars"

    page.get_by_role("button", name="Save").first.click()
    page.get_by_label("Save as").fill("by <b>operation</b>")
    page.keyboard.press("Enter")
    page.reload()
    saved = page.get_by_role("combobox", name="Questions saved in this browser")
    saved.wait_for()
    assert saved.locator("option").all_inner_texts() == ["Saved here: 1", "by <b>operation</b>"]
    with page.expect_download() as exported:
        page.get_by_role("button", name="Export").click()
    exported.value.save_as(tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text()) == {"by <b>operation</b>": question}


def test_names_of_others_are_no_markup_in_the_editor_and_in_a_chart(page: Page, app: str) -> None:
    markup = "<img src=x onerror=window.injected=1>"
    question = f"select '{markup}' as \"{markup}\", 1 as n union all select '{markup}2', 2"
    open_page(page, f"{app}/sql?{urlencode({'q': question, 'chart': 'bars'})}")
    chart = page.get_by_test_id("stVegaLiteChart")
    chart.wait_for()
    settle(page)
    chart.hover(position={"x": 300, "y": 150})
    page.wait_for_timeout(300)

    assert page.evaluate("() => window.injected") is None
    assert page.locator("img[src=x]").count() == 0
