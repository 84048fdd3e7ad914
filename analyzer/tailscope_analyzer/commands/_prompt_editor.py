"""The line that is edited at the prompt: history, several lines until `;`, completion, colours.

Owns everything of prompt_toolkit, and the file of what was asked. Runs nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import PostgresLexer  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import History

    from tailscope_analyzer.commands._vocabulary import Vocabulary

ENV_HISTORY: Final = "TAILSCOPE_HISTORY"
ENV_STATE: Final = "XDG_STATE_HOME"
_WORD: Final = re.compile(r"[a-zA-Z_]\w*$")
_COMMENT: Final = re.compile(r"--[^\n]*")
_QUALIFIER: Final = re.compile(r"(\w+)\.\w*$")
DOT_COMMANDS: Final = (".tables", ".schema", ".limit", ".format", ".pager", ".help", ".quit")


def editor(vocabulary: Vocabulary) -> PromptSession[str]:
    """Return the session whose `prompt()` reads one statement or one dot command."""
    unfinished = Condition(lambda: not is_complete(get_app().current_buffer.text))
    return PromptSession(
        "tailscope> ",
        multiline=unfinished,
        prompt_continuation="      ...> ",
        history=_history(),
        completer=SqlCompleter(vocabulary),
        complete_while_typing=False,
        lexer=PygmentsLexer(PostgresLexer),
        enable_history_search=True,
    )


def is_complete(text: str) -> bool:
    """Tell whether Enter ends the input: a dot command, nothing, or a statement that ends with `;`."""
    bare = _COMMENT.sub("", text).strip()
    return not bare or bare.startswith((".", "\\")) or bare.endswith(";")


class SqlCompleter(Completer):
    """Offers columns after `view.`, view names after `.schema`, and else every name and keyword."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may follow the letters before the cursor."""
        del complete_event
        text = document.text_before_cursor
        if text.startswith(".") and " " not in text:
            yield from (Completion(name, -len(text)) for name in DOT_COMMANDS if name.startswith(text))
            return
        found = _WORD.search(text)
        begun = found.group() if found else ""
        for word in self._words(text):
            if word.startswith(begun.lower()):
                yield Completion(word, -len(begun))

    def _words(self, text: str) -> Iterable[str]:
        columns = self._vocabulary.columns
        if text.startswith((".schema ", "\\d ")):
            return list(columns)
        of = _QUALIFIER.search(text)
        if of and of.group(1) in columns:
            return [name for name, _ in columns[of.group(1)]]
        return self._vocabulary.words()


def history_file() -> Path:
    """Return where the history is kept: TAILSCOPE_HISTORY, else in the user's state directory."""
    given = os.environ.get(ENV_HISTORY)
    if given:
        return Path(given)
    state = os.environ.get(ENV_STATE) or Path.home() / ".local" / "state"
    return Path(state) / "tailscope" / "sql_history"


def _history() -> History:
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # What was asked may name users: nobody else's to read.
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
