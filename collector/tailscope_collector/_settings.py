"""Every setting of the collector, declared once: name, default, bounds, one sentence.

Owns the numbers. `tailscope serve --help` and docs/collector.md are made from this list. Reads no
environment.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

MIB = 1 << 20


def _setting(default: float, sentence: str, *, low: float, high: float) -> Any:
    return field(default=default, metadata={"help": sentence, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of a collector; all have defaults that suit 2 cores and 2 GiB."""

    queue_mb: int = _setting(
        64,
        "Request bytes held between receipt and commit; above it senders are told to wait.",
        low=1,
        high=16_384,
    )
    memory_mb: int = _setting(
        768, "Memory that DuckDB may use before it spills to the data directory.", low=128, high=1_048_576
    )
    threads: int = _setting(2, "Threads of DuckDB.", low=1, high=256)
    query_timeout_s: float = _setting(30.0, "Seconds after which a query is interrupted.", low=0.1, high=3600)
    query_rows: int = _setting(
        5_000_000, "Most rows that one query returns, whatever limit it asks for.", low=1, high=100_000_000
    )
    query_mb: int = _setting(256, "Most MiB that the rows of one answer take.", low=1, high=65_536)
    max_queries: int = _setting(4, "Queries that run at the same time; more wait.", low=1, high=64)
    max_request_mb: int = _setting(64, "Largest export request after decompression.", low=1, high=1024)
    commit_ms: int = _setting(50, "How long a commit waits for more spans, at most.", low=1, high=1000)

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, low, high = getattr(self, setting.name), setting.metadata["low"], setting.metadata["high"]
            if not low <= value <= high:
                raise ValueError(f"{setting.name} is {value}; it must be between {low} and {high}.")

    @property
    def queue_bytes(self) -> int:
        """The bound of the queue in bytes."""
        return self.queue_mb * MIB

    @property
    def query_bytes(self) -> int:
        """The bound of one answer in bytes."""
        return self.query_mb * MIB

    @property
    def memory_bytes(self) -> int:
        """The memory of DuckDB in bytes."""
        return self.memory_mb * MIB

    @property
    def max_request_bytes(self) -> int:
        """The bound of one request in bytes."""
        return self.max_request_mb * MIB
