-- One row per service and operation of the selection, the hundred busiest, busiest first.
-- A request counts as many times as its sample_weight says; effective: so many unsampled ones would tell as much.
-- Parameters: the selection, p50, p95, p99, and target_ms, which may be null: then nothing is over it.
select
    service,
    operation,
    count_w(sample_weight) as requests,
    effective_w(sample_weight) as effective,
    count_w(case when status = 'error' then sample_weight end) as errors,
    count_w(case when duration_ms > $target_ms then sample_weight end) as over_target,
    $p50 as p50_ms,
    $p95 as p95_ms,
    $p99 as p99_ms,
    max(duration_ms) as max_ms
from requests
where $selection
group by service, operation
order by requests desc, service, operation
limit 100
