-- One row is the span $span_id of the trace $trace_id, with all that it says of itself; the first where it was used twice.
-- Parameters: trace_id, span_id.
select
    span_id,
    parent_span_id,
    service,
    instance,
    host,
    operation,
    kind,
    status,
    status_message,
    scope,
    start_unix_nano,
    duration_ns,
    attributes,
    resource,
    events,
    links
from spans
where trace_id = $trace_id
    and span_id = $span_id
order by start_unix_nano, kind
limit 1
