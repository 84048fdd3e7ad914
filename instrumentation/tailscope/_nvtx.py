"""NVTX ranges with the names of the stages, so that Nsight Systems shows them on its time line.

Owns the setting `nvtx` and the stages that also open a range. Off, it costs nothing: the core makes plain
stages. A range of ordinary code is pushed and popped; one that an event loop or a generator may leave later
is started and ended, which may overlap. Never imports torch: its NVTX is used where the host has it.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import asyncio
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from tailscope import _guard
from tailscope._gpu._stage import KINDS, GpuStage, HostStage
from tailscope._record import NOT_STARTED
from tailscope._stage import Stage

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.context.context import Context


class Library(Protocol):
    """What NVTX offers, under any of its Python packages."""

    def push(self, name: str) -> object:
        """Open a range of the calling thread, inside its last one."""
        ...

    def pop(self) -> object:
        """Close the last range of the calling thread."""
        ...

    def start(self, name: str) -> Any:
        """Open a range that any thread may end."""
        ...

    def end(self, handle: Any) -> object:
        """Close it."""
        ...


class PackageNvtx:
    """The package `nvtx`; its domain keeps a description of each name, so that a push costs a call."""

    def __init__(self, nvtx: Any) -> None:
        self._domain: Any = nvtx.get_domain("tailscope")
        self._attributes: dict[str, Any] = {}

    def _named(self, name: str) -> Any:
        found = self._attributes.get(name)
        if found is None:
            found = self._domain.get_event_attributes(message=name)
            if len(self._attributes) < MAX_NAMES:
                self._attributes[name] = found
        return found

    def push(self, name: str) -> object:
        """Open a range of the calling thread, inside its last one."""
        return self._domain.push_range(self._named(name))

    def pop(self) -> object:
        """Close the last range of the calling thread."""
        return self._domain.pop_range()

    def start(self, name: str) -> Any:
        """Open a range that any thread may end."""
        return self._domain.start_range(self._named(name))

    def end(self, handle: Any) -> object:
        """Close it."""
        return self._domain.end_range(handle)


class TorchNvtx:
    """The NVTX inside of torch's CUDA builds."""

    def __init__(self, nvtx: Any) -> None:
        self.push = nvtx.range_push
        self.pop = nvtx.range_pop
        self.start = nvtx.range_start
        self.end = nvtx.range_end


MAX_NAMES: Final = 1024


class Current:
    """The library in use."""

    library: Library | None = None


CURRENT: Final = Current()


def find_library() -> Library | None:
    """Return the NVTX that is there: the package, else torch's; None without either."""
    try:
        return PackageNvtx(import_module("nvtx"))
    except Exception:  # noqa: BLE001 - not installed, or built for another machine
        torch: Any = sys.modules.get("torch")
    nvtx = getattr(getattr(torch, "cuda", None), "nvtx", None)
    if nvtx is None or getattr(torch.version, "cuda", None) is None:  # other builds have a stub that raises
        return None
    return TorchNvtx(nvtx)


def enable(library: Library | None = None) -> type[Stage] | None:
    """Return the class that stages are to be made of from now on; None where there is no NVTX.

    Without a library given, it is the one that is installed.
    """
    CURRENT.library = library or find_library()
    if CURRENT.library is None:
        _guard.report("nvtx", "Setting nvtx is on, and neither nvtx nor a CUDA build of torch is installed")
        return None
    KINDS.host, KINDS.gpu = NvtxHostStage, NvtxGpuStage
    return NvtxStage


def disable() -> None:
    """Open no more ranges; stages that are open end theirs."""
    CURRENT.library = None
    KINDS.host, KINDS.gpu = HostStage, GpuStage


class Range:
    """One range: pushed by this thread, or started for whichever thread ends it."""

    __slots__ = ("_handle", "_library", "_thread")

    def __init__(self, library: Library, name: str, *, nested: bool) -> None:
        self._library = library
        self._thread = threading.get_ident() if nested else 0
        self._handle = library.push(name) if nested else library.start(name)

    def close(self) -> None:
        """Close the range; one that another thread pushed stays open, for it is not ours to pop."""
        if not self._thread:
            self._library.end(self._handle)
        elif self._thread == threading.get_ident():
            self._library.pop()


def open_range(name: str, *, nested: bool) -> Range | None:
    """Open a range; None where there is no NVTX."""
    library = CURRENT.library
    if library is None:
        return None
    try:
        return Range(library, str(name), nested=nested)
    except Exception as error:  # noqa: BLE001 - a guest never breaks its host
        _guard.report("nvtx", f"Tailscope could not open an NVTX range: {error!r}")
        return None


def close_range(opened: Range | None) -> None:
    """Close a range."""
    if opened is not None:
        with _guard.guard("nvtx"):
            opened.close()


class NvtxStage(Stage):
    """A stage that is also a range."""

    _range: Range | None = None
    _inside = 0

    def __enter__(self) -> Self:
        if self._end_ns == NOT_STARTED:
            # Tasks of one loop leave in any order; a range that is popped must be the last one pushed.
            self._range = open_range(self._name, nested=asyncio._get_running_loop() is None)
        else:
            self._inside += 1
        super().__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        super().__exit__(exc_type, exc, tb)
        if self._inside:
            self._inside -= 1
            return
        opened, self._range = self._range, None
        close_range(opened)

    def _start(self, context: Context) -> Context | None:
        if self._range is None:
            self._range = open_range(self._name, nested=False)
        return super()._start(context)

    def _finish(self, error: BaseException | None) -> None:
        super()._finish(error)
        opened, self._range = self._range, None
        close_range(opened)


class NvtxHostStage(NvtxStage, HostStage):
    """What `stage(name, gpu=True)` gives where no device is in use."""


class NvtxGpuStage(NvtxStage, GpuStage):
    """A stage with GPU time that is also a range."""
