-- One row per service of the selected requests, the twelve busiest, busiest first.
-- A request counts as many times as its sample_weight says; effective: so many unsampled ones would tell as much.
-- Parameters: the selection, p50, p95, p99, and target_ms, which may be null.
select
    service,
    count_w(sample_weight) as requests,
    effective_w(sample_weight) as effective,
    count_w(case when status = 'error' then sample_weight end) as errors,
    count_w(case when duration_ms > $target_ms then sample_weight end) as over_target,
    $p50 as p50_ms,
    $p95 as p95_ms,
    $p99 as p99_ms
from requests
where $selection
group by service
order by requests desc, service
limit 12
