-- One row is one edge: calls of one operation from one service to another. A call is a CLIENT or PRODUCER span; the
-- callee is the service of its SERVER or CONSUMER child, else the peer that the caller named. gap_ms is the mean of
-- what the caller measured and the callee did not (network, connection, the callee's queue before its handler).
create view dependencies as
with calls as (
    select
        s.trace_id,
        s.span_id,
        o.service as caller,
        s.operation,
        s.duration_ns,
        s.status = 2 as failed,
        s.peer
    from span_rows as s
    inner join origin_rows as o on o.origin_id = s.origin_id
    where s.kind in (3, 4)
),
answers as (
    select
        s.trace_id,
        s.parent_span_id,
        any_value(o.service) as callee,
        sum(s.duration_ns) as duration_ns
    from span_rows as s
    inner join origin_rows as o on o.origin_id = s.origin_id
    where s.kind in (2, 5) and s.parent_span_id is not null
    group by all
)
select
    c.caller,
    coalesce(a.callee, c.peer, 'unknown') as callee,
    c.operation,
    count(*) as calls,
    count(*) filter (where c.failed) as errors,
    quantile_cont(c.duration_ns / 1e6, 0.5) as p50_ms,
    quantile_cont(c.duration_ns / 1e6, 0.99) as p99_ms,
    avg((c.duration_ns - a.duration_ns) / 1e6) as gap_ms
from calls as c
left join answers as a
    on a.trace_id = c.trace_id and a.parent_span_id = c.span_id
group by all
