"""Drawing for a terminal: text of a given width, with or without colours.

Owns the console that text is drawn on, bars, and the colour of each category. Prints nothing.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from rich.console import Console

if TYPE_CHECKING:
    from rich.console import RenderableType

LEAST_WIDTH: Final = 40
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
COLOUR: Final = {
    "self": "cyan",
    "queue": "yellow",
    "gpu": "green",
    "host_wait": "bright_yellow",
    "gap": "magenta",
    "dependency": "blue",
    "gc": "red",
    "untraced": "bright_black",
}


def drawn(*parts: RenderableType, width: int, colour: bool) -> str:
    """Draw the parts below one another; lines carry no trailing spaces."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, LEAST_WIDTH),
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n"))


def bar(share: float, width: int) -> str:
    """Return a bar of eighths of a column for a share between 0 and 1."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
