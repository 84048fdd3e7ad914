"""The name of the code that a thread is in, from its stack.

Owns the choice of the frame to blame: the innermost one of the service's own code, or the innermost of all
where there is none. A place is described with its whole stack once, afterwards by name alone. Reads no source
file and no local variable.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailscope._signals._names import CODE_FILE, CODE_FUNCTION, CODE_LINE, CODE_STACK

if TYPE_CHECKING:
    from types import FrameType

MAX_FRAMES: Final = 32
MAX_PLACES: Final = 256
"""Places whose stack was told; beyond them none is told any more."""

OWN: Final = str(Path(__file__).resolve().parents[1])


def installed_folders() -> tuple[str, ...]:
    """Return where code lies that is not the service's own: the standard library, packages, ourselves."""
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (*{str(Path(paths[name])) for name in names if paths.get(name)}, OWN, "<frozen")


class Culprits:
    """Names places in code, and remembers which ones it has told."""

    def __init__(self) -> None:
        self._installed = installed_folders()
        self._told: set[tuple[str, int]] = set()

    def describe(self, frame: FrameType) -> dict[str, Any]:
        """Return `code.*` attributes of where a thread is."""
        frames: list[FrameType] = []
        walked: FrameType | None = frame
        while walked is not None and len(frames) < MAX_FRAMES:
            frames.append(walked)
            walked = walked.f_back
        blamed = next((one for one in frames if self._is_own(one)), frame)
        code, line = blamed.f_code, blamed.f_lineno
        module = blamed.f_globals.get("__name__", "?")
        fields: dict[str, Any] = {
            CODE_FUNCTION: f"{module}.{code.co_qualname}",
            CODE_FILE: code.co_filename,
            CODE_LINE: line,
        }
        place = (code.co_filename, line)
        if place not in self._told and len(self._told) < MAX_PLACES:
            self._told.add(place)
            fields[CODE_STACK] = "\n".join(
                f'File "{one.f_code.co_filename}", line {one.f_lineno}, in {one.f_code.co_qualname}'
                for one in reversed(frames)
            )
        return fields

    def _is_own(self, frame: FrameType) -> bool:
        return not frame.f_code.co_filename.startswith(self._installed)
