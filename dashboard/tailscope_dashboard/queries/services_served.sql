-- One row per service of the selected requests: what it answered (SERVER and CONSUMER spans, and entry spans of any
-- kind), and the time of its own a request. Requests are those of some stretches of time, and each counts for stands_for.
-- Parameters: the selection, stretches, near (for spans), stands_for, and quantiles of duration_ms.
with chosen as materialized (
    select
        trace_id,
        sample_weight * $stands_for as sample_weight
    from requests
    where $selection and $stretches
),

served as (
    select
        service,
        duration_ms,
        status,
        sample_weight * $stands_for as sample_weight
    from spans
    where
        (kind in ('server', 'consumer') or parent_span_id is null)
        and $near
        and trace_id in (select trace_id from chosen)
),

answered as (
    select
        service,
        count_w(sample_weight) as requests,
        effective_w(sample_weight) as effective,
        count_w(case when status = 'error' then sample_weight end) as errors,
        $p50 as p50_ms,
        $p99 as p99_ms
    from served
    group by service
),

own as (
    select
        s.service,
        sum(s.self_ms * c.sample_weight) / (select sum(sample_weight) from chosen) as own_ms
    from stages as s
    inner join chosen as c using (trace_id)
    group by s.service
)

select
    coalesce(a.service, o.service) as service,
    coalesce(a.requests, 0) as requests,
    coalesce(a.effective, 0) as effective,
    coalesce(a.errors, 0) as errors,
    a.p50_ms,
    a.p99_ms,
    o.own_ms
from answered as a
full join own as o on o.service = a.service
order by requests desc, service
limit 500
