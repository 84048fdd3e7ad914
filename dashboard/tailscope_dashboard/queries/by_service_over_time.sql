-- One row per service and step of time that has requests; the caller bounds the number of steps.
-- A request counts as many times as its sample_weight says; effective: so many unsampled ones would tell as much.
-- Parameters: the selection, services, p95, and step_us, the length of a step in microseconds.
select
    service,
    time_bucket(to_microseconds($step_us), start_time, $since) as start_time,
    effective_w(sample_weight) as effective,
    $p95 as p95_ms
from requests
where $selection and service in $services
group by 1, 2
order by 1, 2
