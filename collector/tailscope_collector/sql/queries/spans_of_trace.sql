-- One row is one span of the trace $trace_id that is not sealed, with all that is known of it; $most rows at most. No
-- order is promised.
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    o.service,
    o.instance,
    o.host,
    s.operation,
    o.scope,
    kind_name(s.kind) as kind,
    status_name(s.status) as status,
    s.status_message,
    s.stage,
    s.start_unix_nano,
    s.duration_ns,
    s.attribute_keys,
    s.attribute_values,
    o.resource,
    s.events,
    s.links
from (
    select *
    from span_rows
    where trace_id = $trace_id
    limit $most
) as s
inner join origin_rows as o on o.origin_id = s.origin_id
