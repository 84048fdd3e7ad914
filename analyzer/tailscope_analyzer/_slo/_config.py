"""Targets of a service in a file: `tailscope.toml` with a table for each.

Owns its keys and their checks. Opens no file.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._slo._target import PERIOD_S, parse_period, parse_target

if TYPE_CHECKING:
    from tailscope_analyzer._slo._target import Target

KEYS: Final = ("target", "service", "operation", "where", "period")


@dataclass(frozen=True, slots=True)
class Objective:
    """Hold one table `[slo.NAME]`: the targets of some requests."""

    name: str
    targets: tuple[Target, ...]
    service: str | None = None
    operation: str | None = None
    where: str | None = None
    period_s: float = PERIOD_S


def parse_config(text: str, *, origin: str) -> tuple[Objective, ...]:
    """Read the tables `[slo.NAME]`; raises InputError, which names `origin`, for anything that is not right.

    Tables of other names are somebody else's.
    """
    try:
        tables: Any = tomllib.loads(text).get("slo", {})
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{origin} is no TOML: {error}.") from error
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"{origin} has no target. Add a table [slo.NAME] with target = 'p99<200ms'.")
    named = cast("dict[str, Any]", tables)
    return tuple(_objective(name, table, f"[slo.{name}] of {origin}") for name, table in named.items())


def _objective(name: str, table: Any, where: str) -> Objective:
    if not isinstance(table, dict):
        raise InputError(f"{where} is no table. Write a table with a target, such as target = 'p99<200ms'.")
    given = cast("dict[str, Any]", table)
    for key in given:
        if key not in KEYS:
            near = get_close_matches(key, KEYS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It may have: {', '.join(KEYS)}."
            raise InputError(f"{where} has an unknown key {key!r}. {hint}")
    targets: Any = given.get("target")
    if not targets or type(targets) not in (str, list):
        raise InputError(f"{where} has no target. Write target = 'p99<200ms', or a list of them.")
    texts = {key: _text(given[key], key, where) for key in given if key != "target"}
    period = texts.pop("period", None)
    try:
        parsed = tuple(parse_target(_text(one, "target", where)) for one in _each(targets))
        period_s = PERIOD_S if period is None else parse_period(period)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    return Objective(name, parsed, **texts, period_s=period_s)


def _each(targets: str | list[Any]) -> list[Any]:
    return [targets] if isinstance(targets, str) else targets


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{key} of {where} is {value!r}. Write a text.")
    return value
