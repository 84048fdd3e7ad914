"""The rows of the table of servers, read from TOML and checked.

Owns the format: which keys a row has, what they may be, and messages that name file, row and key. Matches
nothing against a span.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

BUILT_IN: Final = Path(__file__).with_name("servers.toml")

NO_STAGE: Final = "none"
"""How a row says that its spans are known and no stage of their own."""

Unit = Literal["ns", "us", "ms", "s", "text"]
UNITS: Final[tuple[Unit, ...]] = ("ns", "us", "ms", "s", "text")
"""Of a plain number; `text` takes only values that carry their unit (1.2ms), as any unit does."""

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRow:
    """Map spans whose scope and name match one of these patterns to a stage."""

    operation: tuple[str, ...]
    stage: str
    scope: tuple[str, ...] = ("*",)
    server: str = ""
    background: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeRow:
    """Map spans that an attribute calls one of these values, in any case, to a stage."""

    key: str
    values: tuple[str, ...]
    stage: str
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordRow:
    """Map spans with one of these words in their name to a stage; a star at the end matches any ending."""

    words: tuple[str, ...]
    stage: str
    server: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Describe one child that is made of an attribute (`key`, less others) or two events (`begin`, `to`)."""

    name: str
    stage: str
    key: str = ""
    less: tuple[str, ...] = ()
    unit: Unit = "s"
    needed: bool = False
    begin: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Describe the parts of a span, in order of time."""

    part: tuple[Part, ...]
    scope: tuple[str, ...] = ("*",)
    operation: tuple[str, ...] = ("*",)
    anchor: Literal["start", "end"] = "start"
    unless: tuple[str, ...] = ()
    server: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every attribute that the layout reads."""
        parts = (key for part in self.part for key in (part.key, *part.less) if key)
        return tuple(dict.fromkeys((*parts, *self.unless)))

    @property
    def events(self) -> tuple[str, ...]:
        """Every event that the layout reads."""
        return tuple(dict.fromkeys(name for part in self.part for name in (part.begin, *part.to) if name))


@dataclass(frozen=True, slots=True)
class Rows:
    """Hold a whole table, in order of precedence."""

    spans: tuple[SpanRow, ...] = ()
    attributes: tuple[AttributeRow, ...] = ()
    words: tuple[WordRow, ...] = ()
    layouts: tuple[Layout, ...] = ()

    def before(self, others: Rows) -> Rows:
        """Return both tables as one, these rows first."""
        return Rows(
            self.spans + others.spans,
            self.attributes + others.attributes,
            self.words + others.words,
            self.layouts + others.layouts,
        )


def read_rows(path: str | os.PathLike[str]) -> Rows:
    """Read a table of servers; raises InputError that names file, row and key of what cannot be read."""
    where = str(path)
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"The table of servers {where} cannot be read: {reason}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"The table of servers {where} is not TOML: {error}.") from error
    unknown = sorted(set(document) - {"span", "attribute", "word", "layout"})
    if unknown:
        raise InputError(f"{where}: no such table: {unknown[0]}. There are span, attribute, word and layout.")
    return Rows(
        _rows(where, document, "span", SpanRow, _checked_stage),
        _rows(where, document, "attribute", AttributeRow, _checked_stage),
        _rows(where, document, "word", WordRow, _checked_stage),
        _rows(where, document, "layout", Layout, _checked_layout),
    )


def _rows(
    where: str,
    document: Mapping[str, Any],
    kind: str,
    row_type: type[RowT],
    check: Callable[[str, RowT], RowT],
) -> tuple[RowT, ...]:
    tables = _list(document.get(kind, []))
    if tables is None:
        raise InputError(f"{where}: {kind} is one table. Write [[{kind}]], a row each.")
    found: list[RowT] = []
    for number, table in enumerate(tables, start=1):
        place = f"{where}, {kind} row {number}"
        found.append(check(place, _read(place, table, row_type)))
    return tuple(found)


def _read(place: str, table: Any, row_type: type[RowT]) -> RowT:
    """Make one row; every key is known, none that it needs is missing, every value is of its type."""
    if not isinstance(table, dict):
        raise InputError(f"{place}: {table!r} is no table.")
    given = {("begin" if key == "from" else str(key)): value for key, value in cast("Any", table).items()}
    known = {field.name: field for field in fields(cast("Any", row_type))}
    for key in given:
        if key not in known:
            there = ", ".join("from" if name == "begin" else name for name in known)
            raise InputError(f"{place}: no such key: {key}. There are {there}.")
    for name, field in known.items():
        if field.default is MISSING and name not in given:
            raise InputError(f"{place}: the key {name} is missing.")
    values = {key: _value(f"{place}, {key}", value, str(known[key].type)) for key, value in given.items()}
    return row_type(**values)


def _value(place: str, value: Any, kind: str) -> Any:
    if kind.startswith("tuple[Part"):
        parts = _list(value)
        if not parts:
            raise InputError(f"{place}: {value!r} is no list of parts.")
        return tuple(_read(f"{place} {number}", part, Part) for number, part in enumerate(parts, start=1))
    if kind.startswith("tuple[str"):
        texts = [value] if isinstance(value, str) else _list(value)
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{place}: {value!r} is no text and no list of texts.")
        return tuple(texts)
    if kind == "bool":
        if not isinstance(value, bool):
            raise InputError(f"{place}: {value!r} must be true or false.")
        return value
    if not isinstance(value, str) or not value:
        raise InputError(f"{place}: {value!r} is no text.")
    return value


def _list(value: Any) -> list[Any] | None:
    return list(cast("Any", value)) if isinstance(value, list) else None


def _checked_stage(place: str, row: RowT) -> RowT:
    stage: str = cast("Any", row).stage
    if stage != stage.strip() or not stage:
        raise InputError(f"{place}, stage: {stage!r} begins or ends with a blank. Write it without.")
    return row


def _checked_layout(place: str, layout: Layout) -> Layout:
    if layout.anchor not in ("start", "end"):
        raise InputError(f"{place}, anchor: {layout.anchor!r} must be start or end.")
    by_event = [bool(part.begin) for part in layout.part]
    if any(by_event) and not all(by_event):
        raise InputError(f"{place}, part: durations and pairs of events need a layout each.")
    for number, part in enumerate(layout.part, start=1):
        at = f"{place}, part {number}"
        _checked_stage(at, part)
        if part.unit not in UNITS:
            raise InputError(f"{at}, unit: {part.unit!r} must be one of {', '.join(UNITS)}.")
        if bool(part.key) == bool(part.begin) or bool(part.to) != bool(part.begin):
            raise InputError(f"{at}: say either key, or from and to.")
    return layout
