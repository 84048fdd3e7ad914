"""Fixtures of the collector's tests: a store driven by hand, a collector in this process, a real process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailscope_collector import Collector
from tests.collector.building import Bench
from tests.collector.serving import ServeProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "data") as made:
        yield made


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with Collector(tmp_path / "data") as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServeProcess]]:
    """Start `tailscope serve` processes on one data directory; all are gone afterwards."""
    started: list[ServeProcess] = []

    def start(*flags: str) -> ServeProcess:
        process = ServeProcess(tmp_path / "data", *flags)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
