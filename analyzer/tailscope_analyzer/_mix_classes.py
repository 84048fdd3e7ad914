"""Which requests ask for the same: operation, model and the size of the input.

Owns the classes that the mix of a window is told by, and what a typical request of each takes. Latency
decides nothing here: a class is what was asked, never how it went.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope_analyzer._arrow import coded, distinct
from tailscope_analyzer._mix_tokens import WIDTH, range_name, token_bits, token_ranges

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

LEAST_IN_CLASS: Final = 30
"""The median of fewer requests is moved by a few slow ones, which would then be told as the mix. Rarer
sizes are put together, rarer classes taken as the coarser one that they are part of: any size, any model,
any operation."""
LEVELS: Final = ("service", "operation", "model", "tokens")
ANY: Final = "any"


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Name what the requests of a class ask for; `any` where a class takes in several."""

    service: str
    operation: str
    model: str
    """Empty where the requests name none."""
    input_tokens: str
    """A range by powers of two, `256-511`; empty where nothing tells of tokens."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Hold the class of each request, and what is known of each class."""

    number: Ints
    names: tuple[RequestClass, ...]
    typical_ms: Floats
    """Weighted median of the class, of all requests that its name fits."""

    @property
    def typical_of(self) -> Floats:
        """What a request of its class typically takes, for every request."""
        return self.typical_ms[self.number]


def sort_into_classes(requests: pl.DataFrame, duration_ms: Floats, weight: Floats) -> Classes:
    """Give each request the finest class that has enough requests.

    Args:
        requests: service, operation, model and input_tokens of each request, one row each.
        duration_ms: of each request.
        weight: how many requests each stands for.

    """
    n = len(requests)
    if n == 0:
        return Classes(np.zeros(0, dtype=np.int64), (), np.zeros(0))
    codes, (low, high) = _by_level(requests)
    level = np.zeros(n, dtype=np.int64)
    for number, code in enumerate(codes):
        level[np.bincount(code)[code] >= LEAST_IN_CLASS] = number
    ordered = np.argsort(duration_ms, kind="stable")
    typical, whole = np.zeros(n), np.zeros(n, dtype=np.int64)
    first = 0
    for number, code in enumerate(codes):
        here = level == number
        if here.any():
            typical[here] = _medians(code, ordered, duration_ms, weight)[code[here]]
            whole[here] = first + code[here]
        first += int(code.max()) + 1
    found, place = distinct(whole, first)
    row = np.zeros(len(found), dtype=np.int64)
    row[place[::-1]] = np.arange(n)[::-1]
    names = [_name(requests, int(at), int(level[at]), range_name(int(low[at]), int(high[at]))) for at in row]
    by_name = sorted(range(len(names)), key=lambda at: _order(names[at]))
    return Classes(np.argsort(by_name)[place], tuple(names[at] for at in by_name), typical[row][by_name])


def _by_level(requests: pl.DataFrame) -> tuple[list[Ints], tuple[Ints, Ints]]:
    """Return each request's code by level, coarse to fine (the first takes in all), and its range."""
    code, room = np.zeros(len(requests), dtype=np.int64), 1
    codes = [code]
    for name in LEVELS[:-1]:
        texts: Any = requests[name].cast(pl.String)
        column = coded(pa.chunked_array([texts.to_arrow()]), "")
        width = max(len(column.values), 1)
        found, code = distinct(code * width + column.codes, room * width)
        room = len(found)
        codes.append(code)
    low, high = token_ranges(code, token_bits(requests["input_tokens"]), LEAST_IN_CLASS)
    _, code = distinct(code * WIDTH + high + 1, room * WIDTH)
    return [*codes, code], (low, high)


def _medians(code: Ints, ordered: Ints, duration_ms: Floats, weight: Floats) -> Floats:
    """Return the weighted median by code; `ordered` are the rows by duration."""
    rows = ordered[np.argsort(code[ordered], kind="stable")]
    until = np.cumsum(weight[rows])
    ends: Ints = np.cumsum(np.bincount(code)) - 1
    before: Floats = np.concatenate([np.zeros(1), until[ends][:-1]])
    at: Ints = np.searchsorted(until, (before + until[ends]) / 2)
    medians: Floats = duration_ms[rows[np.minimum(at, ends)]]
    return medians


def _name(requests: pl.DataFrame, row: int, level: int, tokens: str) -> RequestClass:
    texts = [
        str(requests[name][row] or "") if number < level else ANY for number, name in enumerate(LEVELS[:3])
    ]
    service, operation, model = texts
    return RequestClass(service, operation, model, tokens if level == len(LEVELS) else ANY)


def _order(name: RequestClass) -> tuple[str, str, str, int, str]:
    size = name.input_tokens
    return name.service, name.operation, name.model, len(size), size
