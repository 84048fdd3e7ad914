-- One row is one span of the traces $trace_ids, with what Jaeger's format shows of it; $most rows at most. A list and no
-- subquery: that would be a join behind the view, which reads every row group of a segment (0.5 s a million spans, 0.04).
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
where list_contains($trace_ids::varchar[], trace_id)
limit $most
