-- One row per step of time that has requests, in time order; the caller bounds the number of steps.
-- A request counts as many times as its sample_weight says; effective: so many unsampled ones would tell as much.
-- Parameters: the selection, p50, p95, p99, and step_us, the length of a step in microseconds.
select
    time_bucket(to_microseconds($step_us), start_time, $since) as start_time,
    count_w(sample_weight) as requests,
    effective_w(sample_weight) as effective,
    count_w(case when status = 'error' then sample_weight end) as errors,
    $p50 as p50_ms,
    $p95 as p95_ms,
    $p99 as p99_ms
from requests
where $selection
group by 1
order by 1
