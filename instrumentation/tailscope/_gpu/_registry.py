"""Which device library times the stages of this process.

Owns the list of known backends and the one that was found in use. Never imports one: a library counts only
when the host process has imported it and has a device initialised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailscope import _guard
from tailscope._gpu._cupy import CupyBackend
from tailscope._gpu._torch import TorchBackend
from tailscope._local import now

if TYPE_CHECKING:
    from tailscope._gpu._protocol import Backend


AGAIN_NS: Final = 20_000_000
"""How long "no device" holds: asking costs a microsecond, which a machine without one pays this often."""


class Registry:
    """Known backends, the first in use wins; found once, it stays."""

    __slots__ = ("again_ns", "backends", "found")

    def __init__(self) -> None:
        self.backends: list[Backend] = [TorchBackend(), CupyBackend()]
        self.forget()

    def forget(self) -> None:
        """Look again with the next stage."""
        self.found: Backend | None = None
        self.again_ns = 0

    def find(self) -> Backend | None:
        """Return the backend in use, or None: on a machine without a device, or before the host uses it."""
        if self.found is None and now() >= self.again_ns:
            self.found = self._look()
            self.again_ns = now() + AGAIN_NS
        return self.found

    def _look(self) -> Backend | None:
        for backend in self.backends:
            try:
                ready = backend.ready()
            except Exception as error:  # noqa: BLE001 - a library half imported, or another version of it
                _guard.report(f"gpu:{backend.name}", f"GPU timing cannot ask {backend.name}: {error!r}")
                continue
            if ready:
                return backend
        return None


REGISTRY: Final = Registry()


def register(backend: Backend) -> None:
    """Prefer a backend of the host's own over the known ones, from the next stage on."""
    REGISTRY.backends.insert(0, backend)
    REGISTRY.forget()
