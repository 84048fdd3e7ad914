-- One row per caller and callee (operation null), and one per operation of theirs: calls of the selected requests.
-- A call is a CLIENT or PRODUCER span; the callee is the service of the span that answers it, else the peer that the
-- caller named. gap: what the caller measured and the callee did not; null where no callee was traced.
-- Requests are those of some stretches of time, and each counts for stands_for.
-- Parameters: the selection, stretches, near (for spans), stands_for, and quantiles of call_ms and gap_ms.
with chosen as materialized (
    select trace_id
    from requests
    where $selection and $stretches
),

both_ends as materialized (
    select
        trace_id,
        span_id,
        parent_span_id,
        service,
        operation,
        kind,
        duration_ms,
        status,
        peer,
        sample_weight * $stands_for as sample_weight
    from spans
    where
        kind in ('client', 'producer', 'server', 'consumer')
        and $near
        and trace_id in (select trace_id from chosen)
),

answers as (
    select
        trace_id,
        parent_span_id,
        min(service) as callee,
        sum(duration_ms) as answer_ms
    from both_ends
    where kind in ('server', 'consumer') and parent_span_id is not null
    group by trace_id, parent_span_id
),

calls as (
    select
        c.service as caller,
        coalesce(a.callee, c.peer, 'unknown') as callee,
        a.callee is not null as traced,
        c.operation,
        c.duration_ms as call_ms,
        c.duration_ms - a.answer_ms as gap_ms,
        c.status = 'error' as failed,
        c.sample_weight
    from both_ends as c
    left join answers as a
        on a.trace_id = c.trace_id and a.parent_span_id = c.span_id
    where c.kind in ('client', 'producer')
)

select
    caller,
    callee,
    operation,
    bool_or(traced) as traced,
    count_w(sample_weight) as calls,
    effective_w(sample_weight) as effective,
    count_w(case when failed then sample_weight end) as errors,
    $call_p50 as p50_ms,
    $call_p99 as p99_ms,
    sum(gap_ms * sample_weight) / sum(case when gap_ms is not null then sample_weight end) as gap_ms,
    effective_w(case when gap_ms is not null then sample_weight end) as gap_effective,
    $gap_p99 as gap_p99_ms
from calls
group by grouping sets ((caller, callee), (caller, callee, operation))
order by operation is not null, calls desc, caller, callee, operation
limit 1000
