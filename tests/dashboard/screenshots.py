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

from tailscope_dashboard._child import collector_on
from tests.dashboard.assistants import post as post_assistants
from tests.dashboard.browsers import FLAGS, chromium
from tests.dashboard.eventful import post_eventful
from tests.dashboard.processes import dashboard
from tests.dashboard.traffic import Load, post

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = Path(__file__).parents[2] / "docs" / "img"
MOST_BYTES = 150_000
COLOURS = 240  # of the written palette: text stays sharp and a page fits the limit
WIDTH = 1280

SHOTS: Final[tuple[tuple[str, str, Literal["light", "dark"], int], ...]] = (  # name, page, theme, height
    ("overview", "?target=voice", "light", 1410),
    ("overview-dark", "?target=voice", "dark", 1410),
    ("why-slow", f"why?{urlencode({'change': 'ranker queue=0;ranker auth=50'})}", "light", 2180),
    ("slow-requests", "requests?stage=queue", "light", 960),
)
TRACE_SHOTS: Final[
    tuple[tuple[str, str, Literal["light", "dark"], int], ...]
] = (  # name, address, theme, height
    ("trace", "trace={slow}", "light", 1240),
    ("trace-dark", "trace={slow}", "dark", 1240),
    ("trace-beside", "trace={slow}&beside=typical", "light", 1320),
    ("trace-flame", "trace={slow}&view=flame", "light", 760),
)
"""Of the slow request of `eventful`: name, parameters, theme, height."""

QUESTION: Final = """select instance, stage, round(avg(self_ms), 2) as mean_ms, count(*) as n
from stages join requests using (trace_id)
group by all
order by mean_ms desc"""

MODEL_SHOTS: Final[tuple[tuple[str, str, Literal["light", "dark"], int], ...]] = (
    ("inference", "inference", "light", 1200),
    ("inference-dark", "inference", "dark", 1200),
    ("dependencies", "dependencies?caller=model&callee=features", "light", 1010),
    ("compare", "compare", "light", 1010),
    ("sql", f"sql?{urlencode({'q': QUESTION, 'chart': 'bars', 'x': 'stage'})}", "light", 1100),
)
"""Of the requests of `assistants`: name, address, theme, height."""


def take(folder: Path) -> None:
    """Photograph the pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, collector_on(Path(data)) as collector:
        post(collector, Load(requests=3000))
        with dashboard("--url", collector) as app, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            for name, path, theme, height in SHOTS:
                page = _open(browser, f"{app}/{path}", theme, height)
                _photograph(page, folder / f"{name}.png")
            browser.close()


def take_trace(folder: Path) -> None:
    """Photograph the Trace page into a folder, on a collector of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, collector_on(Path(data)) as collector:
        slow = post_eventful(collector).slow
        with dashboard("--url", collector) as app, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            for name, address, theme, height in TRACE_SHOTS:
                page = _open(browser, f"{app}/trace?{address.format(slow=slow)}", theme, height)
                _photograph(page, folder / f"{name}.png")
            browser.close()


def take_models(folder: Path) -> None:
    """Photograph the pages about models, services, comparisons and SQL, on a collector of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, collector_on(Path(data)) as collector:
        post_assistants(collector, requests=3000)
        with dashboard("--url", collector) as app, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            for name, address, theme, height in MODEL_SHOTS:
                page = _open(browser, f"{app}/{address}", theme, height)
                _photograph(page, folder / f"{name}.png")
            browser.close()


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
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    take(target)
    take_trace(target)
    take_models(target)
