"""What the collector says about the planted faults, asked as a user would: SQL and the report, over HTTP.

Owns the comparison of requests that met a fault with all others. Knows nothing of how a fault was made.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailscope.demo._wire import RANKER

if TYPE_CHECKING:
    from tailscope.demo._faults import Fault

TIMEOUT_S = 60.0
SHOWS_SHARE = 0.35
"""A fault counts as seen when this share of what was planted is found on its rows of the ledger, on average
over the requests that met it: some join a batch window late, or start when a pause is nearly over."""

ENTRY_SQL = """
select
    requests.trace_id,
    requests.instance,
    any_value(entry.attributes) as attributes,
    any_value(try_cast(entry.attributes['http.request.body.size'] as bigint)) as body_bytes,
    bool_or(
        len([e for e in entry.events if e.name = 'gc' and e.attributes['gc.generation'] = '2']) > 0
    ) as paused
from requests
join spans as entry
  on entry.trace_id = requests.trace_id and entry.parent_span_id is null
where requests.service = '{service}'
  and requests.operation = '{operation}'
  and requests.start_time >= timestamp '{since}'
group by all
"""

COMPARE_SQL = """
with
entry as ({entry}),
spent as (
    select
        trace_id,
        sum(self_ms) filter (where {rows}) as fault_ms
    from stages
    where trace_id in (select trace_id from entry)
    group by trace_id
)
select
    coalesce({affected}, false) as affected,
    count(*) as requests,
    avg(coalesce(fault_ms, 0)) as mean_ms
from entry
left join spent using (trace_id)
group by affected
order by affected
"""


BUSIEST_SQL = """
select
    operation,
    count(*) as requests
from requests
where service = '{service}'
  and start_time >= timestamp '{since}'
group by operation
order by requests desc
limit 1
"""


class AskError(RuntimeError):
    """The collector did not answer a question of the demo."""


@dataclass(frozen=True, slots=True)
class Window:
    """The requests that are looked at: those of one operation since the load began (UTC, no zone)."""

    operation: str
    since: str
    percentile: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """The operation with most requests, and how many the collector has of it."""

    operation: str
    requests: int


@dataclass(frozen=True, slots=True)
class Measured:
    """How a fault shows: in the affected requests against all others, and in the report's split."""

    fault: Fault
    affected: int
    others: int
    difference_ms: float
    excess_ms: float

    @property
    def shows(self) -> bool:
        """Say whether the affected requests carry the planted delay where it belongs."""
        return self.affected > 0 and self.difference_ms >= SHOWS_SHARE * self.fault.planted_ms


class Collector:
    """Ask a running collector over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url

    def rows(self, query: str) -> list[list[Any]]:
        """Return the rows of a query."""
        return list(get_json(f"{self.url}/api/sql", {"query": query})["rows"])

    def report(self, window: Window) -> dict[str, Any]:
        """Return the report of the ranker as JSON."""
        asked = {"service": RANKER, "operation": window.operation, "since": f"{window.since}Z"}
        query = urllib.parse.urlencode(asked | {"percentile": f"{window.percentile:g}"})
        return get_json(f"{self.url}/api/report?{query}")


def get_json(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """GET an address, or POST a body to it, and return the JSON object that it answers."""
    headers = {"content-type": "application/json", "accept": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - our own http address
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - our own http address
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        raise AskError(f"{url}: {error.code} {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise AskError(f"{url}: {error}") from error


def busiest_operation(collector: Collector, since: str) -> Arrived:
    """Return which operation of the ranker got most requests: its name depends on FastAPI's version."""
    rows = collector.rows(BUSIEST_SQL.format(service=RANKER, since=since))
    return Arrived(*rows[0]) if rows else Arrived("", 0)


def measure(
    collector: Collector, faults: list[Fault], window: Window, report: dict[str, Any]
) -> list[Measured]:
    """Return for each fault how it shows, in the order of the list."""
    return [measure_one(collector, fault, window, report["stages"]) for fault in faults]


def measure_one(collector: Collector, fault: Fault, window: Window, rows: list[dict[str, Any]]) -> Measured:
    """Compare the requests that met one fault with the others."""
    entry = ENTRY_SQL.format(service=RANKER, operation=window.operation, since=window.since)
    query = COMPARE_SQL.format(entry=entry, rows=fault.rows.sql(), affected=fault.affected)
    groups = {affected: (requests, mean_ms) for affected, requests, mean_ms in collector.rows(query)}
    affected, affected_ms = groups.get(True, (0, 0.0))
    others, others_ms = groups.get(False, (0, 0.0))
    return Measured(
        fault=fault,
        affected=affected,
        others=others,
        difference_ms=affected_ms - others_ms,
        excess_ms=sum(row["excess_ms"] for row in rows if fault.rows.hold(row)),
    )
