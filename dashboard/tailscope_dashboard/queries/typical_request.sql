-- One row is a request of the service and operation whose duration is nearest to the median of all of them in a window,
-- with that median and the number of requests; none where there is no other.
-- Parameters: service, operation, trace_id (left out), since, until.
with same as (
    select
        trace_id,
        duration_ms,
        coalesce(sample_weight, 1) as weight
    from requests
    where service = $service
        and operation = $operation
        and complete
        and status != 'error'
        and trace_id != $trace_id
        and start_time >= $since
        and start_time < $until
),

middle as (
    select
        quantile_w(duration_ms, weight, 0.5) as typical_ms,
        count(*) as n
    from same
)

select
    trace_id,
    duration_ms,
    typical_ms,
    n
from same, middle
order by abs(duration_ms - typical_ms), trace_id
limit 1
