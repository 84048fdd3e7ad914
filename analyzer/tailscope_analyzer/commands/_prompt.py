"""`tailscope sql` at a terminal: one query after the other, until `.quit`.

Owns the loop, the dot commands and how an answer is shown there. Ctrl-C ends what runs and never the prompt.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._errors import AnalyzerError
from tailscope_analyzer._names import printable
from tailscope_analyzer.commands._invocation import terminal_width
from tailscope_analyzer.commands._prompt_editor import editor
from tailscope_analyzer.commands._tables import as_table, csv_parts, json_parts, jsonl_parts
from tailscope_analyzer.commands._vocabulary import MACROS, VIEWS, vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope_analyzer._answer import SqlResult
    from tailscope_analyzer._source import Source

LIMIT: Final = 1_000
"""Rows of an answer at the prompt, where no limit is named: what a person pages through."""

PAGER: Final = "less -FRSX"
"""Ends at once where all fits; does not fold lines: the arrow keys move sideways."""

UNFOLDED: Final = 10_000

TEXTS: Final[dict[str, Callable[[SqlResult], Iterator[str]]]] = {
    "csv": csv_parts,
    "json": json_parts,
    "jsonl": jsonl_parts,
}

HELP: Final = """\
select ...;            run a query; it may take several lines and ends with ;
.tables        \\dt     the views and macros
.schema VIEW   \\d VIEW the columns of a view
.limit N               rows that are shown (0: the collector's cap)
.format FORMAT         table, csv, json or jsonl
.pager on|off          long or wide answers go through $PAGER
.help          \\?      this
.quit          \\q      the end; Ctrl-D too
Tab completes names, arrow up brings back what was asked, Ctrl-C stops a query or clears the line."""


class Prompt:
    """Asks the person at the terminal, then the source, and shows the answer."""

    def __init__(self, source: Source, where: str, *, kind: str = "table", limit: int | None = None) -> None:
        self._source = source
        self._where = where
        self._kind = kind
        self._limit: int | None = LIMIT if limit is None else limit
        self._pages = True
        self._vocabulary = vocabulary_of(source)
        self._commands: dict[str, Callable[[str], None]] = {
            ".tables": self._tables,
            ".schema": self._schema,
            ".limit": self._set_limit,
            ".format": self._set_format,
            ".pager": self._set_pager,
            ".help": lambda _: _say(HELP),
        }

    def run(self) -> None:
        """Read and answer until the person has enough."""
        session = editor(self._vocabulary)
        _say(f"{self._where}: .help helps, .tables lists the views, .quit ends.")
        while True:
            try:
                text = session.prompt().strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if text in {".quit", ".exit", "\\q"}:
                return
            if text:
                self._answer(text)

    def _answer(self, text: str) -> None:
        try:
            if text.startswith((".", "\\")):
                self._obey(text)
            else:
                self._ask(text)
        except KeyboardInterrupt:
            _say("Stopped.")
        except AnalyzerError as error:
            _say(str(error))

    def _ask(self, query: str) -> None:
        began = time.perf_counter()
        with self._source.sql(query, limit=self._limit or None) as result:
            text = "".join(TEXTS[self._kind](result)) if self._kind in TEXTS else self._table(result)
            took_s = time.perf_counter() - began
            self._show(text)
            more = "; there are more, see .limit" if result.truncated else ""
            _say(f"{result.count:,} row{'' if result.count == 1 else 's'} in {took_s:.3f} s{more}")

    def _table(self, result: SqlResult) -> str:
        return as_table(result, UNFOLDED if self._pager() else terminal_width()).rpartition("\n")[0]

    def _show(self, text: str) -> None:
        text = printable(text)
        lines = text.splitlines()
        size = shutil.get_terminal_size()
        fits = len(lines) < size.lines and all(len(line) <= size.columns for line in lines)
        pager = None if fits else self._pager()
        if pager is None:
            print(text.rstrip("\n"))  # noqa: T201
            return
        with contextlib.suppress(OSError, KeyboardInterrupt):
            subprocess.run(pager, input=text, text=True, check=False)

    def _pager(self) -> list[str] | None:
        command = shlex.split(os.environ.get("PAGER", PAGER))
        if command == ["less"]:
            command = shlex.split(PAGER)
        return command if self._pages and command and shutil.which(command[0]) else None

    def _obey(self, text: str) -> None:
        name, _, argument = text.rstrip(";").partition(" ")
        argument = argument.strip()
        name = {"\\dt": ".tables", "\\d": ".schema" if argument else ".tables", "\\?": ".help"}.get(
            name, name
        )
        if name not in self._commands:
            _say(f"There is no {printable(name)}. There are: {', '.join(self._commands)}, .quit.")
            return
        self._commands[name](argument)

    def _tables(self, _: str) -> None:
        width = max(map(len, MACROS)) + 2
        for name, sentence in (*VIEWS.items(), *MACROS.items()):
            print(f"{name:<{width}}{sentence}")  # noqa: T201

    def _schema(self, view: str) -> None:
        columns = self._vocabulary.columns.get(view.lower())
        if columns is None:
            _say(f"There is no view {printable(view)!r}. There are: {', '.join(VIEWS)}.")
            return
        width = max(len(name) for name, _ in columns) + 2
        for name, kind in columns:
            print(f"{name:<{width}}{kind}")  # noqa: T201

    def _set_limit(self, text: str) -> None:
        if text and not text.isdecimal():
            _say(f"{printable(text)!r} is no number of rows.")
            return
        self._limit = int(text) if text else self._limit
        _say(f"At most {self._limit:,} rows." if self._limit else "As many rows as the collector gives.")

    def _set_format(self, text: str) -> None:
        if text not in {"table", *TEXTS}:
            _say(f"There is no format {printable(text)!r} here. There are: table, {', '.join(TEXTS)}.")
            return
        self._kind = text

    def _set_pager(self, text: str) -> None:
        if text not in {"on", "off"}:
            _say("Say .pager on, or .pager off.")
            return
        self._pages = text == "on"


def _say(text: str) -> None:
    print(printable(text), file=sys.stderr)  # noqa: T201
