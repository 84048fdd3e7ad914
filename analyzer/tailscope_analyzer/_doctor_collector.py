"""What a collector says of itself, judged: what it refused, rejected or repaired since its start, its room.

Owns the limits and what to do about each. Pure; reads the answer of `/api/info`, and passes over what an
older collector does not say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Verdict = Literal["ok", "warn", "bad"]

SUBJECT: Final = "collector"

LOST_BAD: Final = 0.01
"""Share of requests or spans that were refused for good."""

DUPLICATE_WARN: Final = 0.01
LATE_WARN: Final = 0.01
QUEUE_WARN: Final = 0.5
DISK_WARN_BYTES: Final = 2 << 30
DISK_BAD_BYTES: Final = 256 << 20
MIB: Final = 1 << 20

HARMLESS: Final = "parent span id is all zero"
"""How some SDKs spell "no parent"; nothing is lost by reading it so."""

AGAIN: Final = frozenset({"overloaded", "unavailable"})
"""Refusals after which senders try again."""

PASSING: Final = frozenset({"starting", "stopping", "queue_full"})

TODO: Final = {
    "malformed": "Its sender speaks no OTLP there: look at the exporter's protocol and at proxies between.",
    "unsupported": "Send application/x-protobuf or application/json, with gzip, deflate, zstd or no coding.",
    "too_large": "Let senders make smaller batches, or raise --max-request-mb.",
    "not_received": "A client gave up, or sent over --max-request-mb: let it make smaller batches.",
    "overloaded": "Senders try again, and drop when that takes too long: give it CPUs, or raise --queue-mb.",
    "unavailable": "Senders try again; the log of the collector says why commits failed.",
    "other": "The log of the collector says why.",
    "unserved": "Logs are not taken here: set OTEL_LOGS_EXPORTER=none in the service.",
}


class Found(NamedTuple):
    """One line: the fields of a `Check`, in its order."""

    check: str
    subject: str
    verdict: Verdict
    figure: str
    value: float | None = None
    todo: str = ""


class _Counts:
    """The counters of one answer."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._counters: dict[str, list[dict[str, Any]]] = about.get("counters") or {}

    def total(self, name: str, **labels: str) -> int:
        """Return a counter, summed over the labels that are not named."""
        return sum(
            int(one["value"])
            for one in self._counters.get(name, ())
            if labels.items() <= one["labels"].items()
        )

    def by_reason(self, name: str) -> dict[str, int]:
        """Return a counter by its label `reason`, the largest first."""
        counts: dict[str, int] = {}
        for one in self._counters.get(name, ()):
            reason = one["labels"].get("reason", "")
            counts[reason] = counts.get(reason, 0) + int(one["value"])
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def examine_collector(about: dict[str, Any]) -> Iterator[Found]:
    """Judge what a collector says of itself."""
    counts = _Counts(about)
    yield from _ready(about)
    yield from _refused(counts)
    yield from _rejected(counts)
    yield from _repeated(counts)
    yield from _repaired(counts)
    yield from _commits(counts)
    yield from _room(about)


def _ready(about: dict[str, Any]) -> Iterator[Found]:
    health: dict[str, Any] = about.get("health") or {}
    reasons: list[dict[str, str]] = health.get("reasons") or []
    for reason in reasons:
        passing = reason["code"] in PASSING
        todo = "Ask again in a moment." if passing else "Senders are told to wait until this is mended."
        yield Found("ready", SUBJECT, "warn" if passing else "bad", reason["message"].rstrip("."), None, todo)
    if health and not reasons:
        yield Found("ready", SUBJECT, "ok", f"takes spans, up {_span(about.get('uptime_s') or 0)}")


def _refused(counts: _Counts) -> Iterator[Found]:
    received = counts.total("requests_total")
    for reason, count in counts.by_reason("requests_refused_total").items():
        share = count / max(received, count)
        bad = reason not in AGAIN and reason != "unserved" and share > LOST_BAD
        figure = f"{count:,} export requests refused since its start: {reason}"
        yield Found("refused", SUBJECT, "bad" if bad else "warn", figure, share, TODO.get(reason, ""))
    for reason, count in counts.by_reason("requests_denied_total").items():
        figure = f"{count:,} requests turned away since its start: {reason}"
        yield Found("refused", SUBJECT, "warn", figure, count, "Look at the tokens and addresses of clients.")


def _rejected(counts: _Counts) -> Iterator[Found]:
    for noun, prefix in (("spans", "spans"), ("data points", "metric_points")):
        received = counts.total(f"{prefix}_received_total")
        for reason, count in counts.by_reason(f"{prefix}_rejected_total").items():
            share = count / max(received, count)
            figure = f"{count:,} {noun} rejected since its start: {reason} ({share:.2%})"
            todo = "Its sender is told in partial_success; look at the SDK that makes them."
            yield Found("rejected", SUBJECT, "bad" if share > LOST_BAD else "warn", figure, share, todo)


def _repeated(counts: _Counts) -> Iterator[Found]:
    received = counts.total("spans_received_total")
    if not received:
        return
    duplicates = counts.total("spans_duplicate_total")
    share = duplicates / received
    todo = "Answers come later than senders wait: raise their timeout, or give the collector CPUs."
    yield _graded(
        "duplicates", f"{duplicates:,} spans came twice and are stored once", share, DUPLICATE_WARN, todo
    )
    late = counts.total("spans_late_total", reason="sealed")
    share = late / received
    todo = "Raise the age at which segments are sealed, or let senders flush sooner."
    yield _graded("late", f"{late:,} spans came after their trace was sealed", share, LATE_WARN, todo)


def _graded(check: str, figure: str, share: float, warn: float, todo: str) -> Found:
    over = share > warn
    return Found(
        check, SUBJECT, "warn" if over else "ok", f"{figure} ({share:.2%})", share, todo if over else ""
    )


def _repaired(counts: _Counts) -> Iterator[Found]:
    for reason, count in counts.by_reason("spans_repaired_total").items():
        harmless = reason.startswith(HARMLESS)
        todo = "" if harmless else "The span is kept without it; look at the SDK that sends it."
        figure = f"{count:,} values repaired since its start: {reason}"
        yield Found("repaired", SUBJECT, "ok" if harmless else "warn", figure, count, todo)


def _commits(counts: _Counts) -> Iterator[Found]:
    failed, made = counts.total("commits_failed_total"), counts.total("commits_total")
    if failed:
        todo = "Senders were told to try again; the log of the collector says why."
        yield Found(
            "commits", SUBJECT, "warn", f"{failed:,} of {failed + made:,} commits failed", failed, todo
        )
    elif made:
        yield Found("commits", SUBJECT, "ok", f"{made:,} commits, none failed", 0)
    tries = counts.total("upkeep_failed_total")
    if tries:
        todo = "Its disk will fill; its log says why."
        yield Found("upkeep", SUBJECT, "warn", f"sealing or deleting failed {tries:,} times", tries, todo)


def _room(about: dict[str, Any]) -> Iterator[Found]:
    queue: dict[str, int] = about.get("queue") or {}
    if queue.get("capacity_bytes"):
        share = queue["bytes"] / queue["capacity_bytes"]
        full = share > QUEUE_WARN
        todo = "It hardly keeps up: give it CPUs or a faster disk, or raise --queue-mb." if full else ""
        yield Found("queue", SUBJECT, "warn" if full else "ok", f"{share:.0%} full", share, todo)
    disk: dict[str, int | None] = about.get("disk") or {}
    free = disk.get("free_bytes")
    if free is not None:
        verdict: Verdict = "bad" if free < DISK_BAD_BYTES else "warn" if free < DISK_WARN_BYTES else "ok"
        todo = "" if verdict == "ok" else "Make room, or let it keep less; a full disk stops receipt."
        yield Found("disk", SUBJECT, verdict, f"{free / MIB:,.0f} MiB free", free, todo)


def _span(seconds: float) -> str:
    """Return a length of time in the largest unit that it fills."""
    units: Iterable[tuple[int, str]] = ((86_400, "d"), (3600, "h"), (60, "min"))
    for size, unit in units:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
