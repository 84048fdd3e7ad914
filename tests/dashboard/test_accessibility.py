"""Every page, as axe-core sees it: nothing serious stands in the way of who sees or clicks otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tailscope_dashboard._pages import PAGES
from tests.dashboard.browsers import settled

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.dashboard.conftest import Seeded

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")
BRUSH = ["[class*=window_brush]"]
"""Parts of Vega's brush are images to axe, and no name can be given to them; the chart has its own text."""


@pytest.mark.parametrize(("name", "theme"), [*((name, "light") for name in PAGES), ("overview", "dark")])
def test_nothing_serious_is_found(page: Page, app: str, seeded: Seeded, name: str, theme: Any) -> None:
    page.emulate_media(color_scheme=theme)
    page.goto(f"{app}/{name}?trace={seeded.trace_ids[0]}")
    settled(page)

    asked = {"resultTypes": ["violations"]}
    found = Axe().run(page, context={"exclude": [BRUSH]}, options=asked).response["violations"]

    said = [
        (rule["id"], node["target"], node["failureSummary"])
        for rule in found
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
    assert said == []
