"""What holds for every test: no property test fails for being slow on a busy machine."""

from __future__ import annotations

from hypothesis import settings

# A deadline for each example measures the machine; pytest-timeout bounds the whole test.
settings.register_profile("tailscope", deadline=None)
settings.load_profile("tailscope")
