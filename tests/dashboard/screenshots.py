"""Pictures of every page for the documentation: `python -m tests.dashboard.screenshots [FOLDER]`.

Starts a collector on a temporary directory, seeds it, starts the dashboard, photographs it in headless
Chromium and writes `docs/img/*.png`, each below 150 kB.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import sync_playwright

from tailscope_analyzer import connect
from tailscope_dashboard._child import collector_on
from tests.dashboard.browsers import FLAGS, chromium
from tests.dashboard.processes import dashboard
from tests.dashboard.traffic import Load, post

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = Path(__file__).parents[2] / "docs" / "img"
MOST_BYTES = 150_000
COLOURS = 240  # of the written palette: text stays sharp and a page fits the limit
WIDTH = 1280

SHOTS: Final[tuple[tuple[str, str, Literal["light", "dark"], int], ...]] = (  # name, page, theme, height
    ("overview", "", "light", 1360),
    ("overview-dark", "", "dark", 1360),
    ("why-slow", "why", "light", 970),
    ("slow-requests", "requests", "light", 900),
    ("trace", "trace?{span}", "light", 1100),
    ("trace-dark", "trace?{span}", "dark", 1100),
)

QUESTION = """select instance, stage, round(avg(self_ms), 2) as mean_ms, count(*) as n
from stages join requests using (trace_id)
group by all
order by mean_ms desc"""


def take(folder: Path) -> None:
    """Photograph the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, collector_on(Path(data)) as collector:
        post(collector, Load(requests=3000))
        with dashboard("--url", collector) as app, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            span = _slow_span(collector)
            for name, path, theme, height in SHOTS:
                page = _open(browser, f"{app}/{path.format(span=span)}", theme, height)
                _photograph(page, folder / f"{name}.png")
            page = _open(browser, f"{app}/sql", "light", 900)
            page.get_by_role("textbox", name="Question in SQL").fill(QUESTION)
            page.get_by_role("button", name="Run").click()
            page.get_by_text("rows,").wait_for()
            _photograph(page, folder / "sql.png")
            browser.close()


def _slow_span(collector: str) -> str:
    with connect(collector) as client:
        rows = client.sql(
            "select trace_id, span_id from spans where stage = 'queue' order by duration_ms desc limit 1"
        ).rows
    return urlencode({"trace": rows[0][0], "span": rows[0][1]})


def _open(browser: Browser, url: str, theme: Literal["light", "dark"], height: int) -> Page:
    page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme=theme)
    page.goto(url)
    page.locator(".st-key-controls").wait_for()
    return page


def _photograph(page: Page, file: Path) -> None:
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
    )
    # Charts and tables draw themselves after the page has arrived; two quiet seconds will do.
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(2_000)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise SystemExit(f"{file}: {size} bytes, over {MOST_BYTES}. Lower its height.")
    page.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
