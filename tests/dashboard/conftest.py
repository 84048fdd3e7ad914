"""Real parts for the dashboard's tests: a seeded collector, an empty one, the dashboard, a browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tailscope_dashboard._child import collector_on
from tests.dashboard.assistants import post as post_assistants
from tests.dashboard.browsers import FLAGS, chromium
from tests.dashboard.processes import dashboard
from tests.dashboard.traffic import Load, post

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page


@dataclass(frozen=True, slots=True)
class Seeded:
    """A collector with requests, and the ids of their traces in order of time."""

    url: str
    trace_ids: list[str]


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    with collector_on(tmp_path_factory.mktemp("seeded")) as url:
        yield Seeded(url, post(url, Load(requests=600)))


@pytest.fixture(scope="session")
def assistants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a collector with requests to two versions of a language model, and metrics of its GPUs."""
    with collector_on(tmp_path_factory.mktemp("assistants")) as url:
        post_assistants(url, requests=600)
        yield url


@pytest.fixture(scope="session")
def empty_collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with collector_on(tmp_path_factory.mktemp("empty")) as url:
        yield url


@pytest.fixture(scope="session")
def app(seeded: Seeded) -> Iterator[str]:
    with dashboard("--url", seeded.url) as url:
        yield url


# Not for the session: while it is open, its event loop counts as running and asyncio.run elsewhere fails.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        except Error as error:
            pytest.skip(
                f"no Chromium to drive; set TAILSCOPE_CHROMIUM to one ({error.message.splitlines()[0]})"
            )
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


@pytest.fixture
def collector_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder
