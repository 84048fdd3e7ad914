-- One row per stage and group of requests of like percentile: the mean time of the stage there.
-- The groups are ten per cent wide up to p90, then end at p95, p98, p99, p99.5, p99.9 and p100.
-- Requests are an even sample, one in every; a request counts as many times as its sample_weight says.
-- Parameters: the selection and every.
with chosen as (
    select
        trace_id,
        duration_ms,
        sample_weight
    from requests
    where $selection and hash(trace_id) % $every = 0
),

ranked as (
    select
        trace_id,
        duration_ms,
        sample_weight,
        (sum(sample_weight) over (order by duration_ms, trace_id) - sample_weight / 2)
        / sum(sample_weight) over () as rank
    from chosen
),

placed as (
    select
        trace_id,
        duration_ms,
        sample_weight,
        cast(case
            when rank < 0.9 then floor(rank * 10)
            when rank < 0.95 then 9
            when rank < 0.98 then 10
            when rank < 0.99 then 11
            when rank < 0.995 then 12
            when rank < 0.999 then 13
            else 14
        end as integer) as place
    from ranked
),

groups as (
    select
        place,
        count(*) as stored,
        count_w(sample_weight * $every) as requests,
        sum(sample_weight) as weight,
        min(duration_ms) as shortest_ms,
        max(duration_ms) as longest_ms
    from placed
    group by place
)

select
    g.place,
    coalesce(s.stage, 'other') as stage,
    any_value(g.stored) as stored,
    any_value(g.requests) as requests,
    any_value(g.shortest_ms) as shortest_ms,
    any_value(g.longest_ms) as longest_ms,
    sum(s.self_ms * p.sample_weight) / any_value(g.weight) as mean_ms
from stages as s
inner join placed as p on p.trace_id = s.trace_id
inner join groups as g on g.place = p.place
group by 1, 2
order by 1, 2
