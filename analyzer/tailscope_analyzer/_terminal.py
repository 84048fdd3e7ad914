"""Drawing for a terminal: text of a given width, with or without colours.

Owns the console that text is drawn on, tables in which names are shortened and numbers never, bars, and the
colour of each category. Prints nothing.
"""

from __future__ import annotations

import io
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

LEAST_WIDTH: Final = 40
NO_BREAK: Final = "\u00a0"
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
GAP: Final = 2
"""Spaces between two columns."""
LEAST_NAME: Final = 8
"""What is left for names at least; the columns that are always there allow for it."""
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


@dataclass(frozen=True, slots=True)
class Column:
    """Hold one column that is shown whole or not at all."""

    title: str
    cells: Sequence[Text]
    right: bool = True

    @property
    def width(self) -> int:
        """Count the terminal's columns that it takes."""
        return max(cell_len(text) for text in (self.title, *(cell.plain for cell in self.cells)))

    def add_to(self, table: Table) -> None:
        """Add the column, still without its cells, to a table."""
        table.add_column(
            self.title, justify="right" if self.right else "left", no_wrap=True, width=self.width
        )


def that_fit(groups: Sequence[Sequence[Column]], room: int) -> list[Column]:
    """Return the first group, and of the others, in order of worth, those that there is room for."""
    chosen = [*groups[0]]
    for group in groups[1:]:
        if sum(column.width + GAP for column in (*chosen, *group)) <= room:
            chosen += group
    return chosen


def fitted(title: str, names: Iterable[str], columns: Sequence[Column], width: int) -> Table:
    """Put names beside columns; the names get what the columns leave, and are shortened to it."""
    left = max(width - sum(column.width + GAP for column in columns), LEAST_NAME)
    shown = [Text(name) for name in names]
    for name in shown:
        name.truncate(left, overflow="ellipsis")
    heading = Text(title)
    heading.truncate(left, overflow="ellipsis")
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column(heading, no_wrap=True, width=Column(heading.plain, shown).width)
    for column in columns:
        column.add_to(table)
    for at, name in enumerate(shown):
        table.add_row(name, *(column.cells[at] for column in columns))
    return table


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


def folded(text: str, width: int) -> str:
    """Break text into lines between words; a number keeps its unit, and no-break spaces hold."""
    glued = re.sub(r"(?<=\d) (?=(?:ms|s|UTC)\b|%)", NO_BREAK, text)
    lines = textwrap.wrap(glued, width, break_on_hyphens=False)
    return "\n".join(lines).replace(NO_BREAK, " ")


def bar(share: float, width: int) -> str:
    """Return a bar of eighths of a column for a share between 0 and 1."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
