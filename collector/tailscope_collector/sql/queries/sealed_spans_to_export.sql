-- One row is one sealed span of the trace $trace_id, with all that was received of it; $most rows at most. Only the
-- segments of the variable `chosen_spans` are read. No order is promised.
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    s.service,
    s.instance,
    s.operation,
    s.scope,
    s.scope_version,
    s.scope_attributes,
    s.scope_types,
    s.scope_schema_url,
    s.kind,
    s.status,
    s.status_message,
    s.start_unix_nano,
    coalesce(s.duration_ns, s.raw_duration_ns) as duration_ns,
    s.attributes,
    s.attribute_types,
    s.resource,
    s.resource_types,
    s.resource_schema_url,
    s.events,
    s.links,
    s.dropped_attributes_count,
    s.dropped_events_count,
    s.dropped_links_count,
    s.trace_state,
    s.flags
from read_parquet(getvariable('chosen_spans')) as s
where s.trace_id = $trace_id
limit $most
