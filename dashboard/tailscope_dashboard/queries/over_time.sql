-- One row per step of time that has requests, in time order; the caller bounds the number of steps.
-- Parameters: the selection, and step_us, the length of a step in microseconds.
select
    time_bucket(to_microseconds($step_us), start_time, $since) as start_time,
    count(*) as requests,
    count(*) filter (where status = 'error') as errors,
    quantile_cont(duration_ms, 0.50) as p50_ms,
    quantile_cont(duration_ms, 0.95) as p95_ms,
    quantile_cont(duration_ms, 0.99) as p99_ms
from requests
where $selection
group by 1
order by 1
