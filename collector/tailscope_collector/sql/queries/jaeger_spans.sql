-- One row is one span of the traces $trace_ids, with what Jaeger's format shows of it; $most rows at most.
select
    trace_id,
    span_id,
    parent_span_id,
    service,
    operation,
    kind,
    start_unix_nano,
    duration_ns,
    status,
    status_message,
    scope,
    attributes,
    attribute_types,
    resource,
    events,
    links,
    trace_state,
    flags
from spans
where trace_id in (select unnest($trace_ids::varchar[]))
limit $most
