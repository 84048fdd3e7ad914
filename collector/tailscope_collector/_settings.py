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
    max_connections: int = _setting(
        16_384,
        "Connections of each port at a time; of HTTP the longest idle one makes place.",
        low=16,
        high=1_000_000,
    )
    head_timeout_s: float = _setting(
        10.0, "Seconds that the head of a request, or a TLS handshake, may take.", low=0.1, high=600
    )
    body_timeout_s: float = _setting(
        60.0, "Seconds that the body of a request may take after its head.", low=0.1, high=3600
    )
    seal_spans: int = _setting(
        1_000_000,
        "Spans of settled traces after which they are sealed into a Parquet segment.",
        low=1_000,
        high=100_000_000,
    )
    seal_s: float = _setting(
        21_600.0, "Seconds after which settled traces are sealed, however few.", low=1, high=31_536_000
    )
    seal_quiet_s: float = _setting(
        5.0, "Seconds without a new span after which a trace counts as settled.", low=0, high=3600
    )
    retain_days: float = _setting(
        30.0, "Days after its sealing that a segment is deleted; 0 keeps all.", low=0, high=36_500
    )
    retain_mb: int = _setting(
        0, "MiB of segments above which the oldest ones are deleted; 0 is no bound.", low=0, high=1 << 30
    )
    commit_ms: int = _setting(50, "How long a commit waits for more spans, at most.", low=1, high=1000)
    sample_rest: float = _setting(
        1.0,
        "Share of ordinary traces that is kept when a segment is sealed; 1 keeps every trace.",
        low=0.0001,
        high=1,
    )
    sample_slow_percentile: float = _setting(
        99.0,
        "When sampling, all traces above this percentile of their operation are kept; 0 is off.",
        low=0,
        high=99.99,
    )
    sample_slow_ms: float = _setting(
        0.0,
        "When sampling, all traces that took at least so long are kept; 0 is off.",
        low=0,
        high=86_400_000,
    )
    sample_rare: int = _setting(
        10,
        "When sampling, so many traces of each service, operation and version are kept in a window.",
        low=0,
        high=1_000_000,
    )
    sample_window_s: float = _setting(
        3600.0, "When sampling, how far back percentiles and rarity look.", low=1, high=604_800
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            value, low, high = getattr(self, setting.name), setting.metadata["low"], setting.metadata["high"]
            if not low <= value <= high:
                raise ValueError(f"{setting.name} is {value}; it must be between {low} and {high}.")

    @property
    def retain_bytes(self) -> int:
        """The bound of the segments on the disk in bytes; 0 is none."""
        return self.retain_mb * MIB

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
    def inflow_bytes(self) -> int:
        """The memory of the process above which few messages are received at a time: DuckDB and the rest."""
        return self.memory_bytes + 192 * MIB

    @property
    def max_request_bytes(self) -> int:
        """The bound of one request in bytes."""
        return self.max_request_mb * MIB
