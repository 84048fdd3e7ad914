-- One row per step of time: what spans of queues say of how many waited before them (queue.depth).
-- Requests are those of some stretches of time.
-- Parameters: the selection, stretches, near (for spans), since, step_us.
with chosen as materialized (
    select trace_id
    from requests
    where $selection and $stretches
),

said as (
    select
        start_time,
        try_cast(attributes['queue.depth'] as double) as depth
    from spans
    where
        (stage = 'queue' or stage like 'queue.%')
        and $near
        and trace_id in (select trace_id from chosen)
)

select
    greatest($since, time_bucket(to_microseconds($step_us), start_time, $since)) as start_time,
    count(*) as n,
    avg(depth) as mean_depth,
    max(depth) as max_depth
from said
where depth is not null
group by 1
order by 1
