"""Names from outside as a person can read them.

Owns what is taken out of them before they are shown: line breaks, control characters (a terminal would obey
them), marks that turn the direction of text, and what is beyond a bounded length.
"""

from __future__ import annotations

from typing import Final

MOST_LETTERS: Final = 60
"""A sentence with longer names in it cannot be read."""


def printable(text: str) -> str:
    """Return text in which no control character but the line break is left for a terminal to obey."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def valued(name: str, value: str) -> str:
    """Write an attribute with its value; a value on a side of a number begins with that side."""
    return f"{name} {value}" if value.startswith((">= ", "<= ")) else f"{name} = {value}"


def readable(name: str, most: int = MOST_LETTERS) -> str:
    """Return a name on one line, printable throughout and at most `most` letters long."""
    plain = "".join(letter for letter in " ".join(name.split()) if letter.isprintable())
    return plain if len(plain) <= most else plain[: most - 1] + "…"
