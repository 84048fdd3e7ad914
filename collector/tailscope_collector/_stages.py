"""The stage of each span, asked of the analyzer once per distinct combination.

Owns a memo of (scope, operation, kind, explicit stage); a batch of 8 k spans has a handful of them. Decides
nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailscope.conventions import SPAN_KINDS, STAGE
from tailscope_analyzer import stage_of
from tailscope_collector._arrow import array, filled

if TYPE_CHECKING:
    from tailscope_collector._arrow import Column, Int64s
    from tailscope_collector._attributes import Attributes
    from tailscope_collector._origins import Origin

StageOf = Callable[[str, str, str, str | None], str | None]
"""(scope, operation, kind, tailscope.stage attribute) -> stage."""

MEMO_LIMIT: Final = 65_536

_Key = tuple[str, str, int, str | None]


def stage_of_span(scope: str, operation: str, kind: str, explicit: str | None) -> str | None:
    """Return the analyzer's stage of a span."""
    return stage_of(scope=scope, operation=operation, kind=kind, explicit=explicit)


@dataclass(slots=True)
class Stages:
    """Asks and remembers."""

    ask: StageOf
    _memo: dict[_Key, str | None] = field(default_factory=dict[_Key, "str | None"])

    def column(
        self,
        operations: Column,
        kinds: np.ndarray[Any, np.dtype[np.int8]],
        attributes: Attributes,
        origins: list[Origin | None],
        of_scope: Int64s,
    ) -> Column:
        """Return the stage of each span, null where it has none."""
        scopes = sorted({origin.scope for origin in origins if origin})
        place = {scope: number for number, scope in enumerate(scopes)}
        scope_codes = np.array([place[origin.scope] if origin else 0 for origin in origins])[of_scope]
        names = operations.dictionary_encode()
        texts: list[str] = names.dictionary.to_pylist()
        explicit, explicit_codes = _explicit(attributes)
        code: Int64s = names.indices.to_numpy().astype(np.int64)
        parts = (len(scopes), scope_codes), (len(SPAN_KINDS), kinds), (len(explicit), explicit_codes)
        for width, more in parts:
            code = code * width + more
        distinct, which = np.unique(code, return_inverse=True)
        stages: list[str | None] = []
        for number in map(int, distinct):
            rest, of_explicit = divmod(number, len(explicit))
            rest, kind = divmod(rest, len(SPAN_KINDS))
            operation, scope = divmod(rest, len(scopes))
            stages.append(self._stage((scopes[scope], texts[operation], kind, explicit[of_explicit])))
        return array(stages, pa.string()).take(array(which))

    def _stage(self, key: _Key) -> str | None:
        if key not in self._memo:
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            scope, operation, kind, explicit = key
            self._memo[key] = self.ask(scope, operation, SPAN_KINDS[kind], explicit)
        return self._memo[key]


def _explicit(attributes: Attributes) -> tuple[list[str | None], Int64s]:
    """Return the distinct explicit stages, none first, and the place of each span's in that list."""
    codes = np.zeros(attributes.owners, dtype=np.int64)
    positions = attributes.positions_of(STAGE)
    if not len(positions):
        return [None], codes
    texts = attributes.texts.take(array(positions)).dictionary_encode()
    codes[attributes.owner_of(positions)] = filled(texts.indices, -1).to_numpy() + 1
    return [None, *texts.dictionary.to_pylist()], codes
