"""Words to token ids, and the made-up documents that the load sends.

Owns tokenising: pure Python on purpose, as much preprocessing is, so that a big body costs real time.
"""

from __future__ import annotations

import re
import zlib
from heapq import nlargest
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

VOCABULARY = 8192
QUERY_TOKENS = 16
DOCUMENT_TOKENS = 48
SCORED_DOCUMENTS = 32
"""The model reads this many documents at most; the rest keep their lexical order."""

WORD = re.compile(r"\w+")
SYLLABLES = (
    "ba",
    "cer",
    "do",
    "fin",
    "gu",
    "hal",
    "ko",
    "lim",
    "mar",
    "nes",
    "or",
    "pul",
    "ras",
    "tev",
    "vu",
    "zen",
)


def tokenise(text: str) -> list[int]:
    """Return one id below `VOCABULARY` for each word."""
    return [zlib.crc32(word.encode()) % VOCABULARY for word in WORD.findall(text.lower())]


def best_documents(query: Iterable[int], documents: Sequence[Sequence[int]]) -> list[int]:
    """Return the indices of the documents that share most words with the query, best first."""
    wanted = set(query)
    overlap = [len(wanted.intersection(document)) for document in documents]
    return nlargest(SCORED_DOCUMENTS, range(len(documents)), key=lambda i: (overlap[i], -i))


def model_input(query: Sequence[int], documents: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Return one row for each document: the query's tokens, then the document's, padded with 0."""
    rows = np.zeros((len(documents), QUERY_TOKENS + DOCUMENT_TOKENS), dtype=np.int64)
    head = query[:QUERY_TOKENS]
    rows[:, : len(head)] = head
    for row, document in zip(rows, documents, strict=True):
        tail = document[:DOCUMENT_TOKENS]
        row[QUERY_TOKENS : QUERY_TOKENS + len(tail)] = tail
    return rows


class Corpus:
    """Make text of the shape of real text: few common words, many rare ones, lengths with a long tail."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        picks: list[list[int]] = self._rng.integers(0, len(SYLLABLES), (4000, 3)).tolist()
        self._words = ["".join(SYLLABLES[i] for i in pick) for pick in picks]

    def text(self, words: int) -> str:
        """Return a text of that many words."""
        ranks: list[int] = (self._rng.zipf(1.3, words) % len(self._words)).tolist()
        return " ".join(self._words[rank] for rank in ranks)

    def documents(self, count: int) -> list[str]:
        """Return documents of 40 words in the median."""
        lengths = np.clip(self._rng.lognormal(3.7, 0.4, count), 8, 200).astype(int)
        return [self.text(int(length)) for length in lengths]
