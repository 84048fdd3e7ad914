-- One row per service and operation of the selection, the hundred busiest, busiest first.
-- Parameters: the selection.
select
    service,
    operation,
    count(*) as requests,
    count(*) filter (where status = 'error') as errors,
    quantile_cont(duration_ms, 0.50) as p50_ms,
    quantile_cont(duration_ms, 0.95) as p95_ms,
    quantile_cont(duration_ms, 0.99) as p99_ms,
    max(duration_ms) as max_ms
from requests
where $selection
group by service, operation
order by requests desc, service, operation
limit 100
