"""Spans that were sent twice, found without an index: a cache of fingerprints marks suspects, SQL convicts.

Owns the cache: 2 M sets of eight 32-bit tags, 64 MiB, each set a queue of its own. It remembers all of the
last million spans, all but one in 9,000 of the last 4 million, and half of those 16 million ago. A suspect
that is no duplicate costs one look-up, never a span; a duplicate of an older span than the cache remembers
is stored twice. Two spans are the same when trace id, span id, kind and start are: a client and a server
span that share an id (Zipkin's habit) are two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from tailscope_collector._arrow import Bytes, Int64s, Positions, Prints

SLOTS: Final = 1 << 24
WAYS: Final = 8
_MIX: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


def fingerprints(
    trace_ids: Bytes,
    span_ids: Bytes,
    kinds: npt.NDArray[np.int8],
    starts: Int64s,
) -> Prints:
    """Return 64 bits per span; ids come as 16 and 8 bytes a span, end to end."""
    halves: Prints = np.ascontiguousarray(trace_ids).view(np.uint64)
    spans: Prints = np.ascontiguousarray(span_ids).view(np.uint64)
    mixed: Prints = halves[0::2] * np.uint64(_MIX[0]) ^ _spread(halves[1::2] * np.uint64(_MIX[1]))
    mixed = _spread(mixed + spans * np.uint64(_MIX[2]))
    mixed = mixed + starts.view(np.uint64) * np.uint64(_MIX[3]) + kinds.astype(np.uint64)
    return _spread(_spread(mixed) * np.uint64(_MIX[0]))


def _spread(values: Prints) -> Prints:
    return values ^ (values >> np.uint64(29))


class FingerprintCache:
    """Remembers the fingerprints of recent spans. Belongs to the thread that commits."""

    def __init__(self, *, slots: int = SLOTS) -> None:
        if slots < WAYS or slots & (slots - 1):
            raise ValueError(f"slots must be a power of two from {WAYS} on, not {slots}")
        self._mask = np.uint64(slots // WAYS - 1)
        # The newest tag of a set comes first. Tag 0 means empty; a fingerprint's own tag 0 is stored as 1.
        # Written now: zeros that the system makes when they are first touched cost the first commit 0.1 s.
        self._tags = np.full((slots // WAYS, WAYS), 0, dtype=np.uint32)

    def suspects(self, prints: Prints) -> Positions:
        """Return the rows whose fingerprint may have been seen, and remember all."""
        sets, tags = self._place(prints)
        seen: npt.NDArray[np.bool_] = (self._tags[sets] == tags[:, None]).any(axis=1)
        self._push(sets[~seen], tags[~seen])
        return np.flatnonzero(seen)

    def remember(self, prints: Prints) -> None:
        """Remember fingerprints of spans that are stored."""
        self._push(*self._place(prints))

    def _place(self, prints: Prints) -> tuple[Positions, npt.NDArray[np.uint32]]:
        sets = (prints & self._mask).astype(np.intp)
        tags = (prints >> np.uint64(32)).astype(np.uint32)
        return sets, np.maximum(tags, np.uint32(1))

    def _push(self, sets: Positions, tags: npt.NDArray[np.uint32]) -> None:
        """Put each tag at the head of its set; those of one set one after the other, in order."""
        order = np.argsort(sets, kind="stable")
        ordered = sets[order]
        first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
        size = np.diff(np.r_[first, len(ordered)])
        turn = 0
        while len(first):
            rows = order[first + turn]
            self._tags[sets[rows], 1:] = self._tags[sets[rows], :-1]
            self._tags[sets[rows], 0] = tags[rows]
            turn += 1
            first, size = first[size > turn], size[size > turn]


def repeats_within(prints: Prints) -> Positions:
    """Return the rows whose fingerprint stands earlier in the same batch."""
    order = np.argsort(prints, kind="stable")
    ordered = prints[order]
    return np.sort(order[1:][ordered[1:] == ordered[:-1]])
