-- One row is one sealed span of the trace $trace_id, with all that is known of it; $most rows at most. Only the segments
-- of the variable `chosen_spans` are read. No order is promised.
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    s.service,
    s.instance,
    s.host,
    s.operation,
    s.scope,
    s.kind,
    s.status,
    s.status_message,
    s.stage,
    s.start_unix_nano,
    coalesce(s.duration_ns, s.raw_duration_ns) as duration_ns,
    s.attributes,
    s.resource,
    s.events,
    s.links
from read_parquet(getvariable('chosen_spans')) as s
where s.trace_id = $trace_id
limit $most
