-- One row is one pair of services: how many calls of the one, begun between the two times, the other answered. A call counts
-- as many times as its span stands for. The callee is the service of the answering span, else the peer that the caller named;
-- calls of neither are left out.
with calls as (
    select
        trace_id,
        span_id,
        service,
        sample_weight,
        peer
    from spans
    where
        kind in ('client', 'producer')
        and start_time between make_timestamp($since_us::bigint) and make_timestamp($until_us::bigint)
),
answers as (
    select
        trace_id,
        parent_span_id,
        min(service) as service
    from spans
    where kind in ('server', 'consumer') and parent_span_id is not null
    group by all
)
select
    c.service as parent,
    coalesce(a.service, c.peer) as child,
    count_w(c.sample_weight) as calls
from calls as c
left join answers as a on a.trace_id = c.trace_id and a.parent_span_id = c.span_id
where
    coalesce(a.service, c.peer) is not null
    and ($service::varchar is null or $service::varchar in (c.service, coalesce(a.service, c.peer)))
group by all
order by all
limit $most
