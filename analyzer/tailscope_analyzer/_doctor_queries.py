"""What `tailscope doctor` asks, in SQL over the public views.

Owns the text of the questions. Each has conditions of the window as fields, and answers with few rows: one a
service, a pair of services, or an instance that is odd.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from tailscope.conventions import DROPPED_REQUESTS, DROPPED_SPANS

PARENT_MARGIN: Final = timedelta(minutes=10)
"""A span's parent may have begun so long before the window."""

PAIRS: Final = 50
"""Pairs of services whose clocks are compared, those with the most calls."""

NEWEST: Final = "select max(start_time) as newest from spans"

SERVICES: Final = """\
select
    service,
    count(*) as spans,
    count(distinct instance) as instances,
    max(start_time) as last_seen,
    count(*) / greatest(epoch(max(start_time) - min(start_time)), 1) as spans_per_s,
    count(*) filter (where duration_ns < 0) as backwards,
    sum(dropped_attributes_count + dropped_events_count + dropped_links_count)::bigint as cut
from spans
where {spans}
group by service
order by spans desc, service"""

REQUESTS: Final = """\
with chosen as (select trace_id, service, operation, complete from requests where {requests}),
staged as (
    select distinct trace_id from stages
    where stage != 'other' and trace_id in (select trace_id from chosen)
),
marked as (
    select chosen.*, staged.trace_id is not null as has_stage
    from chosen left join staged using (trace_id)
)
select
    service,
    count(*) as requests,
    count(*) filter (where has_stage) as staged,
    count(*) filter (where complete) as complete,
    mode(operation) filter (where not has_stage) as bare_operation
from marked
where service is not null
group by service
order by requests desc, service"""

COVERAGE: Final = """\
with chosen as (select trace_id from requests where {requests}),
parts as (
    select
        service,
        operation,
        sum(self_ms) as total_ms,
        sum(self_ms) filter (where stage = 'other' and category in ('self', 'untraced')) as untraced_ms,
        sum(self_ms) filter (where stage != 'other') as staged_ms
    from stages
    where trace_id in (select trace_id from chosen) and category != 'dependency'
    group by all
)
select
    service,
    sum(total_ms) as total_ms,
    coalesce(sum(untraced_ms), 0) as untraced_ms,
    coalesce(sum(staged_ms), 0) as staged_ms,
    arg_max(operation, untraced_ms) as largest_operation
from parts
group by service
order by total_ms desc, service"""

ORPHANS: Final = """\
with chosen as (select trace_id, service, parent_span_id from spans where {spans}),
there as (select distinct trace_id, span_id from spans where {parents})
select
    c.service,
    count(*) as spans,
    count(*) filter (where c.parent_span_id is not null and t.span_id is null) as orphans
from chosen as c
left join there as t on t.trace_id = c.trace_id and t.span_id = c.parent_span_id
group by c.service
order by spans desc, c.service"""

# The counts only grow, and the first request after a change carries them: an instance's largest is its total.
DROPPED: Final = (
    """\
with told as (
    select
        service,
        instance,
        count(*) as spans,
        max(try_cast(attributes['"""
    + DROPPED_SPANS
    + """'] as bigint)) as dropped_spans,
        max(try_cast(attributes['"""
    + DROPPED_REQUESTS
    + """'] as bigint)) as dropped_requests
    from spans
    where {spans}
    group by service, instance
)
select
    service,
    sum(spans)::bigint as spans,
    coalesce(sum(dropped_spans), 0)::bigint as dropped_spans,
    coalesce(sum(dropped_requests), 0)::bigint as dropped_requests
from told
group by service
order by spans desc, service"""
)

CLOCKS: Final = """\
with edges as (
    select
        p.service as caller,
        c.service as callee,
        c.start_unix_nano - p.start_unix_nano as after_ns,
        p.start_unix_nano + p.duration_ns - c.start_unix_nano - c.duration_ns as before_ns
    from spans as c
    inner join spans as p on p.trace_id = c.trace_id and p.span_id = c.parent_span_id
    where
        {child} and {parent}
        and c.kind = 'server' and p.kind in ('client', 'producer') and c.service != p.service
)
select
    caller,
    callee,
    count(*) as calls,
    count(*) filter (where after_ns < 0) as early,
    coalesce(median(after_ns - before_ns) / 2e6, 0) as offset_ms
from edges
group by caller, callee
order by calls desc, caller, callee
limit """ + str(PAIRS)

INSTANCES: Final = """\
with processes as (
    select
        service,
        instance,
        concat_ws('/', host, resource['process.pid']) as process,
        count(*) as spans,
        min(start_time) as first_seen,
        max(start_time) as last_seen
    from spans
    where {spans}
    group by all
),
following as (
    select
        *,
        max(last_seen) over (
            partition by service, instance order by first_seen, process
            rows between unbounded preceding and 1 preceding
        ) as seen_before
    from processes
)
select
    service,
    instance,
    sum(spans)::bigint as spans,
    count(*) as processes,
    coalesce(bool_or(first_seen < seen_before), false) and instance is not null as overlapping
from following
group by service, instance
having instance is null or overlapping
order by spans desc, service, instance
limit 20"""


def window(since: datetime | None, until: datetime | None) -> dict[str, str]:
    """Return the conditions of a window; times without a zone are UTC."""
    return {
        "spans": between("start_time", since, until),
        "requests": between("start_time", since, until),
        "child": between("c.start_time", since, until),
        "parent": between("p.start_time", since and since - PARENT_MARGIN, until),
        "parents": between("start_time", since and since - PARENT_MARGIN, until),
    }


def between(column: str, since: datetime | None, until: datetime | None) -> str:
    """Return a condition on a column of times."""
    parts = [] if since is None else [f"{column} >= {literal(since)}"]
    if until is not None:
        parts.append(f"{column} < {literal(until)}")
    return " and ".join(parts) or "true"


def literal(when: datetime) -> str:
    """Return a time as SQL has it."""
    naive = when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
    return f"timestamp '{naive.isoformat(sep=' ', timespec='microseconds')}'"
