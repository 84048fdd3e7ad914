"""The events of a Chrome trace, one after the other, from the text of its JSON.

Owns the two forms (a list, an object with `traceEvents`), files that end too early, and times: microseconds
with a fraction become nanoseconds without passing through a double, whose steps are a quarter of a
microsecond at the present time. Never keeps an event: a file of a gigabyte is read in its own size.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS_KEY: Final = "traceEvents"
_MEGABYTE: Final = 1 << 20
_BLANK: Final = re.compile(r"\s*")
_BETWEEN: Final = re.compile(r"[\s,]*")
_COLON: Final = re.compile(r"\s*:\s*")


class Exact(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


_EXACT: Final = json.JSONDecoder(parse_float=Exact)
_PLAIN: Final = json.JSONDecoder()


@dataclass(slots=True)
class ChromeText:
    """The text of a Chrome trace; `header` and `is_cut_off` are complete when the events were read."""

    text: str
    header: dict[str, Any] = field(default_factory=dict[str, Any])
    is_cut_off: bool = False
    """The file ends inside its events."""

    def events(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield (offset, event) in the order of the file; floats are `Exact`; skips what is no object."""
        begin = _after(_BLANK, self.text, 0)
        try:
            if self.text[begin] == "[":
                yield from self._list(begin + 1)
            else:
                yield from self._object(begin + 1)
        except (ValueError, IndexError, StopIteration):
            self.is_cut_off = True

    def digest(self, size_bytes: int) -> bytes:
        """Return a digest of the text, a megabyte at a time."""
        made = blake2b(digest_size=size_bytes)
        for at in range(0, len(self.text), _MEGABYTE):
            made.update(self.text[at : at + _MEGABYTE].encode("utf-8", "surrogatepass"))
        return made.digest()

    def event(self, offset: int) -> dict[str, Any]:
        """Return the event at an offset, with plain numbers."""
        return cast("dict[str, Any]", _PLAIN.raw_decode(self.text, offset)[0])

    def _list(self, at: int) -> Iterator[tuple[int, dict[str, Any]]]:
        text, decode = self.text, _EXACT.raw_decode
        at = _after(_BETWEEN, text, at)
        while text[at] != "]":
            value, end = decode(text, at)
            if isinstance(value, dict):
                yield at, cast("dict[str, Any]", value)
            at = _after(_BETWEEN, text, end)
        self._ended(at + 1)

    def _object(self, at: int) -> Iterator[tuple[int, dict[str, Any]]]:
        at = _after(_BETWEEN, self.text, at)
        while self.text[at] != "}":
            key, at = _PLAIN.raw_decode(self.text, at)
            at = _after(_COLON, self.text, at)
            if key == EVENTS_KEY and self.text[at] == "[":
                yield from self._list(at + 1)
                at = self._end
            else:
                self.header[str(key)], at = _PLAIN.raw_decode(self.text, at)
            at = _after(_BETWEEN, self.text, at)

    _end: int = 0

    def _ended(self, at: int) -> None:
        self._end = at


def chrome_text(text: str) -> ChromeText | None:
    """Return the text as a Chrome trace; None where it is something else."""
    at = _after(_BLANK, text, 0)
    begin = text[at : at + 1]
    if begin == "{" and f'"{EVENTS_KEY}"' not in text:
        return None
    first = next(ChromeText(text).events(), None)
    if begin == "[":
        is_one = first is not None and "ph" in first[1]
    else:
        is_one = first is not None or _has_no_events(text)
    return ChromeText(text) if is_one else None


def _has_no_events(text: str) -> bool:
    try:
        return isinstance(json.loads(text).get(EVENTS_KEY), list)
    except (ValueError, RecursionError):
        return False


def members(value: Any) -> dict[str, Any]:
    """Return what an object holds; nothing of what is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def nanoseconds(microseconds: Any) -> int:
    """Return a number of microseconds as whole nanoseconds; raises ValueError or TypeError."""
    if isinstance(microseconds, int) and not isinstance(microseconds, bool):
        return microseconds * 1000
    if not isinstance(microseconds, str):
        raise TypeError(f"{microseconds!r} is no number of microseconds")
    whole, _, fraction = microseconds.partition(".")
    if fraction.isdecimal() and whole.isdecimal():
        return int(whole) * 1000 + int(fraction[:3].ljust(3, "0"))
    try:
        return int(Decimal(microseconds) * 1000)
    except ArithmeticError as error:
        raise ValueError(f"{str(microseconds)[:40]!r} is no number of microseconds") from error


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
