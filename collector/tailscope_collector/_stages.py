"""The stage of each span, asked of the analyzer once per distinct combination.

Owns a memo of (scope, operation, kind, explicit stage, telling attribute); a batch of 8 k spans has a handful
of them. Decides nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailscope.conventions import SPAN_KINDS, STAGE
from tailscope_analyzer import known_servers
from tailscope_collector._arrow import array, filled

if TYPE_CHECKING:
    from tailscope_analyzer import Servers
    from tailscope_collector._arrow import Column, Int64s
    from tailscope_collector._attributes import Attributes
    from tailscope_collector._origins import Origin

MEMO_LIMIT: Final = 65_536

_Told = tuple[str, str]
"""The key and value of an attribute that tells a stage."""

_Key = tuple[str, str, int, str | None, _Told | None]


@dataclass(frozen=True, slots=True)
class StageOf:
    """Asks the analyzer's table of servers for the stage of a span; the known servers if none is given."""

    servers: Servers | None = None

    def __call__(
        self, scope: str, operation: str, kind: str, explicit: str | None, told: _Told | None = None
    ) -> str | None:
        """Return the stage of a span, by its `tailscope.stage` (`explicit`), names and telling attribute."""
        return self._table.stage_of(
            scope=scope,
            operation=operation,
            kind=kind,
            explicit=explicit,
            attributes=dict([told]) if told else None,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The attributes that tell stages, best first."""
        return self._table.stage_keys

    def tells(self, told: _Told) -> bool:
        """Tell whether the table knows the value of that attribute."""
        return self._table.told(dict([told])) is not None

    @property
    def _table(self) -> Servers:
        return self.servers or known_servers()


stage_of_span: Final = StageOf()


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
        told, told_codes = self._told(attributes)
        code: Int64s = names.indices.to_numpy().astype(np.int64)
        parts = (len(scopes), scope_codes), (len(SPAN_KINDS), kinds), (len(explicit), explicit_codes)
        for width, more in (*parts, (len(told), told_codes)):
            code = code * width + more
        distinct, which = np.unique(code, return_inverse=True)
        stages: list[str | None] = []
        for number in map(int, distinct):
            rest, of_told = divmod(number, len(told))
            rest, of_explicit = divmod(rest, len(explicit))
            rest, kind = divmod(rest, len(SPAN_KINDS))
            operation, scope = divmod(rest, len(scopes))
            key = scopes[scope], texts[operation], kind, explicit[of_explicit], told[of_told]
            stages.append(self._stage(key))
        return array(stages, pa.string()).take(array(which))

    def _stage(self, key: _Key) -> str | None:
        if key not in self._memo:
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            scope, operation, kind, explicit, told = key
            self._memo[key] = self.ask(scope, operation, SPAN_KINDS[kind], explicit, told)
        return self._memo[key]

    def _told(self, attributes: Attributes) -> tuple[list[_Told | None], Int64s]:
        """Return the attributes that tell a stage, none first, and the place of each span's in that list."""
        told: list[_Told | None] = [None]
        codes = np.zeros(attributes.owners, dtype=np.int64)
        for key in reversed(self.ask.keys):  # the best is written last
            positions = attributes.positions_of(key)
            if not len(positions):
                continue
            texts = attributes.texts.take(array(positions)).dictionary_encode()
            place = np.zeros(len(texts.dictionary) + 1, dtype=np.int64)  # the last is null's
            for number, text in enumerate(texts.dictionary.to_pylist()):
                if self.ask.tells((key, text)):
                    place[number] = len(told)
                    told.append((key, text))
            of = place[filled(texts.indices, -1).to_numpy()]
            codes[attributes.owner_of(positions)[of > 0]] = of[of > 0]
        return told, codes


def _explicit(attributes: Attributes) -> tuple[list[str | None], Int64s]:
    """Return the distinct explicit stages, none first, and the place of each span's in that list."""
    codes = np.zeros(attributes.owners, dtype=np.int64)
    positions = attributes.positions_of(STAGE)
    if not len(positions):
        return [None], codes
    texts = attributes.texts.take(array(positions)).dictionary_encode()
    codes[attributes.owner_of(positions)] = filled(texts.indices, -1).to_numpy() + 1
    return [None, *texts.dictionary.to_pylist()], codes
