"""What a span is called by the table of servers: its stage, and whether it runs after the response.

Owns precedence: an explicit `tailscope.stage`, then scope and name, then what an attribute says, then the
words of the name. Reads no data: callers ask once per distinct combination.
"""

from __future__ import annotations

import re
from fnmatch import translate
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tailscope.conventions import INFERENCE_SUBSTAGES
from tailscope_analyzer._servers._table import BUILT_IN, NO_STAGE, Layout, Rows, SpanRow, read_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

GUESSED_KINDS: Final = frozenset({"internal", "unspecified", ""})
"""A SERVER or CLIENT span is called after an endpoint, which says nothing about the stage it is."""

REMEMBERED: Final = 8192
"""Distinct names that are remembered; a service has hundreds, a broken one makes one per request."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Servers:
    """Answer for one table of servers: that of `known_servers`, or one made with `load_servers`."""

    def __init__(self, rows: Rows) -> None:
        self.layouts: tuple[Layout, ...] = rows.layouts
        self.stage_keys: tuple[str, ...] = tuple(dict.fromkeys(row.key for row in rows.attributes))
        """Attributes that tell a stage, best first."""
        self.keys: tuple[str, ...] = tuple(
            dict.fromkeys([*self.stage_keys, *(key for layout in rows.layouts for key in layout.keys)])
        )
        """Every attribute that the table reads."""
        self.events: tuple[str, ...] = tuple(
            dict.fromkeys(name for layout in rows.layouts for name in layout.events)
        )
        """Every event that the table reads."""
        self._exact: dict[str, list[int]] = {}
        self._spans = [(row, _pattern(row.scope), _pattern(row.operation)) for row in rows.spans]
        patterns: list[str] = []
        for number, row in enumerate(rows.spans):
            for operation in row.operation:
                if _is_pattern(operation):
                    patterns.append(operation)
                else:
                    self._exact.setdefault(operation, []).append(number)
        self._any = _pattern(tuple(patterns))
        self._told = {
            (row.key, value.casefold()): row.stage
            for row in reversed(rows.attributes)
            for value in row.values
        }
        self._words = [
            (row.stage, word.removesuffix("*"), word.endswith("*"))
            for row in rows.words
            for word in row.words
        ]
        self._row = lru_cache(maxsize=REMEMBERED)(self._find_row)
        self._guess = lru_cache(maxsize=REMEMBERED)(self._find_word)

    def stage_of(
        self,
        *,
        scope: str,
        operation: str,
        kind: str,
        explicit: str | None,
        attributes: Mapping[str, str] | None = None,
    ) -> str | None:
        """Return the stage of a span, as the function of this name does."""
        if explicit and explicit.strip():
            return _explicit(explicit.strip())
        row = self._row(scope, operation)
        if row is not None:
            if row.stage.endswith(".*"):
                return operation
            return None if row.stage == NO_STAGE else row.stage
        told = self.told(attributes) if attributes else None
        if told is not None:
            return None if told == NO_STAGE else told
        # A route or an RPC method says what is asked for, not what is being done.
        return self._guess(operation) if kind in GUESSED_KINDS and "/" not in operation else None

    def is_background(self, *, scope: str, operation: str) -> bool:
        """Tell whether a span runs after the response was sent."""
        row = self._row(scope, operation)
        return row is not None and row.background

    def is_known(self, *, scope: str, operation: str) -> bool:
        """Tell whether a row knows the span by scope and name."""
        return self._row(scope, operation) is not None

    def told(self, attributes: Mapping[str, str]) -> str | None:
        """Return the stage that attributes tell; `none` where they say that it is no stage."""
        for key in self.stage_keys:
            stage = self._told.get((key, attributes.get(key, "").casefold()))
            if stage is not None:
                return stage
        return None

    def _find_row(self, scope: str, operation: str) -> SpanRow | None:
        if self._any.match(operation):
            numbers: list[int] | range = range(len(self._spans))
        else:
            numbers = self._exact.get(operation, [])
        for number in numbers:
            row, scopes, operations = self._spans[number]
            if operations.match(operation) and scopes.match(scope):
                return row
        return None

    def _find_word(self, operation: str) -> str | None:
        parts = [word.lower() for word in _WORD.findall(operation)]
        # Neighbours joined: `pre_process` and `batchWait` are written in as many ways as there are styles.
        words = {*parts, *(first + second for first, second in pairwise(parts))}
        for stage, stem, starts in self._words:
            if stem in words or (starts and any(word.startswith(stem) for word in words)):
                return stage
        return None


def load_servers(path: str | os.PathLike[str]) -> Servers:
    """Read a TOML file of further servers; its rows come before those that Tailscope knows.

    Raises InputError that names file, row and key of what cannot be read.
    """
    return Servers(read_rows(path).before(read_rows(BUILT_IN)))


@cache
def known_servers() -> Servers:
    """Return the table of the servers that Tailscope knows."""
    return Servers(read_rows(BUILT_IN))


def stage_of(
    *,
    scope: str,
    operation: str,
    kind: str,
    explicit: str | None,
    attributes: Mapping[str, str] | None = None,
) -> str | None:
    """Return the stage of a span, as `inference` or `inference.prefill`, or None when it is no stage.

    Args:
        scope: name of the instrumentation scope that made the span; empty when unknown.
        operation: the span's name.
        kind: one of `conventions.SPAN_KINDS`; empty when unknown.
        explicit: value of the attribute `tailscope.stage`, which wins over everything else.
        attributes: those of the span that tell stages (`Servers.stage_keys`); others are not looked at.

    """
    return known_servers().stage_of(
        scope=scope, operation=operation, kind=kind, explicit=explicit, attributes=attributes
    )


def matches(patterns: tuple[str, ...], texts: list[str]) -> list[bool]:
    """Tell which texts match one of the patterns."""
    if "*" in patterns:
        return [True] * len(texts)
    pattern = _pattern(patterns)
    return [pattern.match(text) is not None for text in texts]


def _explicit(stage: str) -> str:
    # A name outside our vocabulary is the user's own stage and stays as written.
    return f"inference.{stage}" if stage in INFERENCE_SUBSTAGES else stage


def _is_pattern(text: str) -> bool:
    return any(letter in text for letter in "*?[")


def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # Without any pattern, one that matches nothing.
    return re.compile("|".join(translate(pattern) for pattern in patterns) or r"(?!)")
