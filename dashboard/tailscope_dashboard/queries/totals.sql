-- One row: the figures of the selected requests. Latencies in milliseconds, errors by the status of the entry span.
-- Parameters: the selection.
select
    count(*) as requests,
    count(*) filter (where status = 'error') as errors,
    count(distinct (service, operation)) as operations,
    quantile_cont(duration_ms, 0.50) as p50_ms,
    quantile_cont(duration_ms, 0.95) as p95_ms,
    quantile_cont(duration_ms, 0.99) as p99_ms,
    min(duration_ms) as min_ms,
    max(duration_ms) as max_ms
from requests
where $selection
