"""Is the tracing itself well: what arrives, what is missing, what was dropped, whose clock is off.

Owns the checks, their limits and what to do about each. Pure: rows come from a function that answers SQL, the
time is an argument. Never judges the service's latency; that is the report's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from tailscope.conventions import UNKNOWN_SERVICE
from tailscope_analyzer import _doctor_queries as queries
from tailscope_analyzer._doctor_collector import examine_collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

Verdict = Literal["ok", "warn", "bad"]
Rows = list[dict[str, Any]]
SEVERITY: Final[dict[Verdict, int]] = {"ok": 0, "warn": 1, "bad": 2}

SILENT_S: Final = 300.0
"""A service that has sent nothing for so long, while others did, may have lost its way to the collector."""

STAGED_SHARE: Final = 0.95
"""Requests of a service that have a stage; one endpoint without any (a health check) is usual."""

UNTRACED_WARN: Final = 0.2
"""Share of a service's own time that no stage explains."""

INCOMPLETE_WARN: Final = 0.01
INCOMPLETE_BAD: Final = 0.05
"""The report's verdict speaks up at the second, too."""

ORPHAN_WARN: Final = 0.001
DROPPED_BAD: Final = 0.01
BACKWARDS_BAD: Final = 0.001
SKEW_WARN_MS: Final = 1.0
"""Hosts that are synchronised by NTP in one data centre agree to better than a millisecond."""

SKEW_BAD_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    """Hold one line of the examination."""

    check: str
    """`arrival`, `name`, `stages`, `coverage`, `complete`, `orphans`, `dropped`, `limits`, `clock`,
    `duration`, `instance`, `report`, or of the collector itself `ready`, `answers`, `refused`,
    `rejected`, `duplicates`, `late`, `repaired`, `commits`, `upkeep`, `queue`, `disk`."""
    subject: str
    """The service, the pair of services, or the instance."""
    verdict: Verdict
    figure: str
    value: float | None = None
    """What the verdict is about, as a number, where it is one."""
    todo: str = ""
    """What to do; empty where all is well."""


@dataclass(frozen=True, slots=True)
class Examination:
    """Hold all checks of one window, the worst verdict among them on top."""

    checks: tuple[Check, ...]
    since: datetime | None
    until: datetime | None

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict."""
        worst: Verdict = "ok"
        for check in self.checks:
            if SEVERITY[check.verdict] > SEVERITY[worst]:
                worst = check.verdict
        return worst

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {
            "version": 1,
            "verdict": self.verdict,
            "window": {
                "since": None if self.since is None else self.since.isoformat(),
                "until": None if self.until is None else self.until.isoformat(),
            },
            "checks": [asdict(check) for check in self.checks],
        }


def examine(
    ask: Callable[[str], Rows],
    *,
    now: datetime,
    since: datetime | None,
    until: datetime | None,
    quality: str | None = None,
    live: bool = False,
    about: dict[str, Any] | None = None,
) -> Examination:
    """Examine what is stored of a window.

    Args:
        ask: answers one SELECT with rows by column name.
        now: the time, in UTC; how long ago something was seen counts from here.
        since: beginning of the window; None for all there is.
        until: its end, exclusive; None for now.
        quality: the verdict of a report over the same window, where one was made.
        live: a collector was asked that runs, and the window reaches to now.
        about: what the collector that was asked says of itself, where one was.

    """
    window = queries.window(since, until)

    def rows(query: str) -> Rows:
        return ask(query.format(**window))

    of_collector = [] if about is None else [Check(*found) for found in examine_collector(about)]
    services = rows(queries.SERVICES)
    if not services:
        return Examination((nothing(ask(queries.NEWEST), since), *of_collector), since, until)
    found = [
        *arrivals(services, now),
        *(silence(services, now) if live else ()),
        *stages(rows(queries.REQUESTS)),
        *coverage(rows(queries.COVERAGE)),
        *orphans(rows(queries.ORPHANS)),
        *dropped(rows(queries.DROPPED)),
        *clocks(rows(queries.CLOCKS)),
        *instances(rows(queries.INSTANCES)),
        *report_quality(quality),
        *of_collector,
    ]
    return Examination(tuple(found), since, until)


def unanswered(why: str, about: dict[str, Any]) -> Examination:
    """Examine a collector that cannot answer questions about its spans, by what it says of itself alone."""
    figure = f"what is stored cannot be asked: {why}"
    answers = Check("answers", "collector", "bad", figure, None, "See `ready`, and the log of the collector.")
    return Examination((*(Check(*found) for found in examine_collector(about)), answers), None, None)


def nothing(newest: Rows, since: datetime | None) -> Check:
    """Say that the window is empty, and whether the store is."""
    last: datetime | None = newest[0]["newest"] if newest else None
    if last is None:
        todo = (
            "Call tailscope.init(endpoint=...) in the service, or set its OTEL_EXPORTER_OTLP_ENDPOINT, "
            "and look at tailscope.stats() there: `errors` says why nothing leaves."
        )
        return Check("arrival", "", "bad", "no span has ever arrived", 0, todo)
    beginning = "" if since is None else f" since {since:%Y-%m-%d %H:%M} UTC"
    figure = f"no span{beginning}; the newest is of {last:%Y-%m-%d %H:%M:%S} UTC"
    return Check("arrival", "", "bad", figure, 0, "Is the service running? --since looks further back.")


def arrivals(services: Rows, now: datetime) -> Iterator[Check]:
    """Say what arrives of each service, and which have gone silent while others go on."""
    newest = max(row["last_seen"] for row in services)
    for row in services:
        seconds = (now - row["last_seen"]).total_seconds()
        instances = row["instances"]
        figure = (
            f"{row['spans']:,} spans, {row['spans_per_s']:,.1f}/s, {instances:,} "
            f"instance{'' if instances == 1 else 's'}, last seen {ago(seconds)}"
        )
        silent = (newest - row["last_seen"]).total_seconds() > SILENT_S
        todo = "Others go on: is it running, and can it reach the collector?" if silent else ""
        yield Check("arrival", row["service"], "warn" if silent else "ok", figure, row["spans_per_s"], todo)
        yield from oddities(row)


def silence(services: Rows, now: datetime) -> Iterator[Check]:
    """Say that nothing arrives at all any more, which no service shows by itself."""
    seconds = (now - max(row["last_seen"] for row in services)).total_seconds()
    if seconds > SILENT_S:
        todo = (
            "Is there traffic? If so: do the services run, and can they reach this collector? They log once "
            "that spans wait for it."
        )
        yield Check(
            "arrival", "", "warn", f"the newest span of all services came {ago(seconds)}", seconds, todo
        )


def oddities(row: dict[str, Any]) -> Iterator[Check]:
    """Say what is odd about the spans of a service themselves."""
    service, spans = row["service"], row["spans"]
    if service == UNKNOWN_SERVICE:
        todo = "Name it: tailscope.init(service=...) or OTEL_SERVICE_NAME."
        yield Check("name", service, "warn", f"{spans:,} spans name no service", None, todo)
    if row["backwards"]:
        share = row["backwards"] / spans
        figure = f"{row['backwards']:,} spans end before they start ({share:.2%})"
        todo = "Its clock steps back while spans are open: trace with a monotonic clock, as tailscope does."
        yield Check("duration", service, "bad" if share > BACKWARDS_BAD else "warn", figure, share, todo)
    if row["cut"]:
        figure = f"{row['cut']:,} attributes, events or links were left out by limits of the sender"
        todo = "Raise max_attributes, max_events or max_links of tailscope.init, or record less."
        yield Check("limits", service, "warn", figure, row["cut"], todo)


def stages(requests: Rows) -> Iterator[Check]:
    """Say which services have requests without any stage, and which arrive in parts."""
    for row in requests:
        total, share = row["requests"], row["staged"] / row["requests"]
        # Nothing is lost there: a service that `tailscope run` records has few stages, and is whole.
        verdict: Verdict = "ok" if share >= STAGED_SHARE else "warn"
        todo = (
            ""
            if verdict == "ok"
            else "Put `with tailscope.stage(...)` around auth, preprocess, inference and the rest, "
            f"first in {row['bare_operation']!r}."
        )
        figure = f"{share:.1%} of {total:,} requests have stages"
        yield Check("stages", row["service"], verdict, figure, share, todo)
        missing = (total - row["complete"]) / total
        verdict = graded(missing, INCOMPLETE_WARN, INCOMPLETE_BAD)
        todo = (
            ""
            if verdict == "ok"
            else "Spans are missing, or still on their way: look at the check `dropped`, and at "
            "workers that are killed before they flush."
        )
        figure = f"{missing:.2%} of {total:,} requests are incomplete"
        yield Check("complete", row["service"], verdict, figure, missing, todo)


def coverage(services: Rows) -> Iterator[Check]:
    """Say how much of a service's own time no stage explains; of services that have stages."""
    for row in services:
        if not row["staged_ms"] or not row["total_ms"]:
            continue  # the check of stages has said it
        share = row["untraced_ms"] / row["total_ms"]
        verdict: Verdict = "ok" if share <= UNTRACED_WARN else "warn"
        where = f"Open stages inside {row['largest_operation']!r}: most of it is there."
        figure = f"{share:.1%} of its own time is in no stage"
        yield Check("coverage", row["service"], verdict, figure, share, "" if verdict == "ok" else where)


def orphans(services: Rows) -> Iterator[Check]:
    """Say whose spans name a parent that never arrived."""
    for row in services:
        share = row["orphans"] / row["spans"]
        verdict: Verdict = "ok" if share <= ORPHAN_WARN else "warn"
        todo = (
            ""
            if verdict == "ok"
            else "The caller's span did not come: is the caller traced to this collector, does it sample, "
            "was it killed?"
        )
        figure = f"{row['orphans']:,} of {row['spans']:,} spans name a parent that never came"
        yield Check("orphans", row["service"], verdict, figure, share, todo)


def dropped(services: Rows) -> Iterator[Check]:
    """Say what services have dropped by their own count, which they send along."""
    for row in services:
        spans, requests = row["dropped_spans"], row["dropped_requests"]
        share = spans / (spans + row["spans"])
        verdict: Verdict = "ok" if not spans and not requests else "bad" if share > DROPPED_BAD else "warn"
        todo = (
            ""
            if verdict == "ok"
            else "tailscope.stats().dropped in the service says the cause. buffer_full: raise buffer_spans "
            "or buffer_bytes, or let the collector keep up; refused and rejected: see its log."
        )
        figure = f"{spans:,} spans and {requests:,} requests dropped ({share:.2%})"
        yield Check("dropped", row["service"], verdict, figure, share, todo)


def clocks(pairs: Rows) -> Iterator[Check]:
    """Say whose clocks disagree: a callee that starts before its caller."""
    for row in pairs:
        share = row["early"] / row["calls"]
        apart = abs(row["offset_ms"])
        off = row["early"] > 0 and apart > SKEW_WARN_MS
        verdict: Verdict = "ok" if not off else "bad" if share > SKEW_BAD_SHARE else "warn"
        todo = "Synchronise the hosts' clocks (NTP): gaps between these services are wrong." if off else ""
        figure = (
            f"in {row['early']:,} of {row['calls']:,} calls the callee starts before its caller; "
            f"its clock is about {row['offset_ms']:+.1f} ms off"
            if off
            else f"{row['calls']:,} calls in order"
        )
        yield Check("clock", f"{row['caller']} > {row['callee']}", verdict, figure, row["offset_ms"], todo)


def instances(rows: Rows) -> Iterator[Check]:
    """Say where replicas cannot be told apart: no instance id, or one for two processes at a time."""
    for row in rows:
        if row["instance"] is None:
            todo = "Set service.instance.id, different for each process (tailscope does it by itself)."
            figure = f"{row['spans']:,} spans name no instance"
            yield Check("instance", row["service"], "warn", figure, None, todo)
        elif row["overlapping"]:
            figure = f"{row['processes']:,} processes send as {row['instance']!r} at the same time"
            todo = "Give each process its own service.instance.id: do not set it before workers are forked."
            yield Check("instance", row["service"], "bad", figure, row["processes"], todo)


def report_quality(quality: str | None) -> Iterator[Check]:
    """Say what the report says of the same window."""
    if quality is not None:
        verdict: Verdict = "ok" if quality == "ok" else "warn"
        figure = "its numbers can be relied on" if quality == "ok" else quality
        todo = "" if quality == "ok" else "Ask `tailscope report` for one --service and --operation."
        yield Check("report", "", verdict, figure, None, todo)


def graded(share: float, warn: float, bad: float) -> Verdict:
    """Return the verdict of a share that should be small."""
    return "bad" if share > bad else "warn" if share > warn else "ok"


def ago(seconds: float) -> str:
    """Return how long ago, in the largest unit that it fills."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
