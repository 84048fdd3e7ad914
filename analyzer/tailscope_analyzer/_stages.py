"""The stage of every span of a table, asked of the table of servers once per distinct combination.

Owns what a mapped table (one with a column `stage`) leaves to the attributes: a span without a stage, of a
name that nobody knows, whose attribute says that a model was called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl

from tailscope.conventions import SPAN_KINDS, STAGE
from tailscope_analyzer._arrow import Coded, distinct

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._attributes import Found
    from tailscope_analyzer._servers import Servers


@dataclass(frozen=True, slots=True)
class Named:
    """Hold what spans are called: the distinct pairs of scope and operation, each span's pair and kind."""

    pairs: list[tuple[str, str]]
    pair_of: Ints
    kind: Ints


def find_stages(
    servers: Servers, given: Coded | None, named: Named, keys: tuple[str, ...], attributes: Found
) -> Coded:
    """Return the stage of every span: as `given`, else by attribute, scope and name; -1 is no stage."""
    told, of_told = _told(servers, len(named.kind), keys, attributes)
    if given is None:
        said, names = attributes.column(keys.index(STAGE), len(named.kind))
        return _asked(servers, named, np.arange(len(named.kind)), (said, names), (told, of_told))
    if not len(of_told):
        return given
    known = np.array([servers.is_known(scope=scope, operation=name) for scope, name in named.pairs])
    row = np.flatnonzero((given.codes < 0) & (told >= 0) & ~known[named.pair_of])
    found = _asked(servers, named, row, (np.full(len(told), -1), []), (told, of_told))
    values = [*given.values, *(stage for stage in found.values if stage not in given.values)]
    codes = given.codes.copy()
    place = np.array([*(values.index(stage) for stage in found.values), -1], dtype=np.int64)
    codes[row] = place[found.codes]
    return Coded(codes, values)


def _told(
    servers: Servers, length: int, keys: tuple[str, ...], attributes: Found
) -> tuple[Ints, list[dict[str, str]]]:
    """Return per span which telling attribute it has (-1 is none), the best by key, and each of them."""
    codes = np.full(length, -1, dtype=np.int64)
    pairs: list[dict[str, str]] = []
    for key in reversed(servers.stage_keys):
        row, values = attributes.of(keys.index(key))
        if not len(row):
            continue
        names = values.unique(maintain_order=True)
        of = [-1] * len(names)
        for number, name in enumerate(cast("list[str]", names.to_list())):
            if servers.told({key: name}) is not None:
                of[number] = len(pairs)
                pairs.append({key: name})
        code = values.replace_strict(names, of, return_dtype=pl.Int64).to_numpy()
        codes[row[code >= 0]] = code[code >= 0]
    return codes, pairs


def _asked(
    servers: Servers,
    named: Named,
    row: Ints,
    said: tuple[Ints, list[str]],
    told: tuple[Ints, list[dict[str, str]]],
) -> Coded:
    """Ask for each distinct combination among the rows."""
    width, many, more = len(SPAN_KINDS), len(said[1]) + 1, len(told[1]) + 1
    combined = ((named.pair_of[row] * width + named.kind[row]) * many + said[0][row] + 1) * more
    combined += told[0][row] + 1
    codes, position = distinct(combined, max(len(named.pairs), 1) * width * many * more)
    known: dict[str, int] = {}
    stages: list[int] = []
    for code in cast("list[int]", codes.tolist()):
        rest, attribute = divmod(code, more)
        rest, name = divmod(rest, many)
        (scope, operation), number = named.pairs[rest // width], rest % width
        stage = servers.stage_of(
            scope=scope,
            operation=operation,
            kind=SPAN_KINDS[number],
            explicit=said[1][name - 1] if name else None,
            attributes=told[1][attribute - 1] if attribute else None,
        )
        stages.append(-1 if stage is None else known.setdefault(stage, len(known)))
    return Coded(np.array(stages, dtype=np.int64)[position], list(known))
