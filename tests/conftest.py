"""What holds for every test: no property test fails for being slow on a busy machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import settings

# A deadline for each example measures the machine; pytest-timeout bounds the whole test.
settings.register_profile("tailscope", deadline=None)
settings.load_profile("tailscope")


@pytest.fixture
def only_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reports hold percentiles and the split alone: hundreds of them are made for their intervals."""
    from tailscope_analyzer import _tail

    monkeypatch.setattr(_tail, "gather_evidence", lambda *_: None)
    monkeypatch.setattr(_tail, "find_changes", lambda *_, **__: SimpleNamespace(rows=(), timeline=None))
    monkeypatch.setattr(_tail, "default_rows", lambda *_: ())
    monkeypatch.setattr(_tail, "_mix", lambda *_: None)
