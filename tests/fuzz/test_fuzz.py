"""A few seconds of each fuzz target, always with the same cases; `python -m tests.fuzz` goes on longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz import TARGETS
from tests.fuzz.__main__ import explore
from tests.fuzz.targets import Running

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 2.0


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_in_a_few_seconds(tmp_path: Path, name: str) -> None:
    running = Running(tmp_path / "data")
    try:
        tried = explore(running, name, seed=20, seconds=SECONDS)
    finally:
        running.close()

    assert tried > 50
