-- One row is one edge: calls of one operation from one service to another. A call is a CLIENT or PRODUCER span; the
-- callee is the service of its SERVER or CONSUMER child, else the peer that the caller named. gap_ms is the mean of
-- what the caller measured and the callee did not (network, connection, the callee's queue before its handler). A call
-- counts as many times as its span stands for.
create view dependencies as
with calls as (
    select
        s.trace_id,
        s.span_id,
        s.service as caller,
        s.operation,
        s.duration_ns,
        s.sample_weight,
        s.status = 'error' as failed,
        s.peer
    from spans as s
    where s.kind in ('client', 'producer')
),
answers as (
    select
        s.trace_id,
        s.parent_span_id,
        min(s.service) as callee,
        sum(s.duration_ns) as duration_ns
    from spans as s
    where s.kind in ('server', 'consumer') and s.parent_span_id is not null
    group by all
)
select
    c.caller,
    coalesce(a.callee, c.peer, 'unknown') as callee,
    c.operation,
    count_w(c.sample_weight) as calls,
    count_w(case when c.failed then c.sample_weight end) as errors,
    p50w(c.duration_ns / 1e6, c.sample_weight) as p50_ms,
    p99w(c.duration_ns / 1e6, c.sample_weight) as p99_ms,
    sum((c.duration_ns - a.duration_ns) / 1e6 * c.sample_weight)
    / nullif(sum(case when c.duration_ns - a.duration_ns is not null then c.sample_weight end), 0) as gap_ms
from calls as c
left join answers as a
    on a.trace_id = c.trace_id and a.parent_span_id = c.span_id
group by all
