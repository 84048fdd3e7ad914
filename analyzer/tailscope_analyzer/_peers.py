"""Whom a call goes to when nothing at its other end sends spans: the peer that the caller names.

Owns which of the attributes in PEER_KEYS counts: the first that is there and not empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tailscope.conventions import PEER_KEYS
from tailscope_analyzer._columns import KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._columns import SpanColumns

KEY_NUMBERS = [KEYS.index(key) for key in PEER_KEYS]


def peer_in(attributes: Mapping[str, str]) -> str:
    """Return the peer that one span's attributes name; empty where they name none."""
    return next((attributes[key] for key in PEER_KEYS if attributes.get(key)), "")


def peers_of(spans: SpanColumns, wanted: Bools | None = None) -> tuple[Ints, list[str]]:
    """Return the peer of every span (of the wanted ones) as a code, -1 for none, and the distinct peers."""
    found = spans.attributes
    names_peer = np.isin(np.arange(len(spans.keys)), KEY_NUMBERS)
    # Servers say where they listen, on every span: few of those that carry the attribute are calls.
    named = names_peer[found.key]
    at = np.flatnonzero(named if wanted is None else named & wanted[found.row])
    at = at[(found.values.gather(at) != "").to_numpy()]
    at = at[np.lexsort((found.key[at], found.row[at]))]  # KEYS has them in order of precedence
    row, first = np.unique(found.row[at], return_index=True)
    peer = found.values.gather(at[first])
    names = peer.unique(maintain_order=True)
    codes = np.full(len(spans), -1, dtype=np.int64)
    codes[row] = peer.replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    return codes, names.to_list()
