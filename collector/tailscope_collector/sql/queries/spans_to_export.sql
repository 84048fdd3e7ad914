-- One row is one span of the trace $trace_id that is not sealed, with all that was received of it; $most rows at most. No
-- order is promised.
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    o.service,
    o.instance,
    s.operation,
    o.scope,
    o.scope_version,
    o.scope_attributes,
    o.scope_types,
    o.scope_schema_url,
    kind_name(s.kind) as kind,
    status_name(s.status) as status,
    s.status_message,
    s.start_unix_nano,
    s.duration_ns,
    s.attribute_keys,
    s.attribute_values,
    s.attribute_types,
    o.resource,
    o.resource_types,
    o.resource_schema_url,
    s.events,
    s.links,
    s.dropped_attributes_count,
    s.dropped_events_count,
    s.dropped_links_count,
    s.trace_state,
    s.flags
from (
    select *
    from span_rows
    where trace_id = $trace_id
    limit $most
) as s
inner join origin_rows as o on o.origin_id = s.origin_id
