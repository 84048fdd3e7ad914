-- One row is one span of the trace $trace_id, with all that is known of it; $most rows at most. Ordered by start and
-- span id.
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    o.service,
    o.instance,
    o.host,
    s.operation,
    o.scope,
    case s.kind
        when 1 then 'internal'
        when 2 then 'server'
        when 3 then 'client'
        when 4 then 'producer'
        when 5 then 'consumer'
        else 'unspecified'
    end as kind,
    case s.status
        when 1 then 'ok'
        when 2 then 'error'
        else 'unset'
    end as status,
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
order by
    s.start_unix_nano,
    s.span_id
