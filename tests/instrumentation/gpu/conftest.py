"""The marker of the tests that need a real GPU: `pytest -m gpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "gpu: needs a real GPU, and says so where there is none")
