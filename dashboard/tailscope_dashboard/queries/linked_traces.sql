-- One row is one of some traces that a span links to, as far as it is a request; ordered by start.
-- Parameters: trace_ids, since, until (when their requests may have begun).
select
    trace_id,
    service,
    operation,
    start_time,
    duration_ms,
    status
from requests
where trace_id in $trace_ids
    and start_time >= $since
    and start_time < $until
order by start_time, trace_id
