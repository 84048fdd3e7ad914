-- One row is one span. No order is promised. A duration is null where the sender set no start or no end (0). Columns after dropped_links_count are promoted attributes and extras.
create view spans as
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    o.service,
    o.instance,
    o.host,
    s.operation,
    case s.kind
        when 1 then 'internal'
        when 2 then 'server'
        when 3 then 'client'
        when 4 then 'producer'
        when 5 then 'consumer'
        else 'unspecified'
    end as kind,
    s.start_time,
    s.start_unix_nano,
    case when s.start_unix_nano != 0 and s.start_unix_nano + s.duration_ns != 0 then s.duration_ns end as duration_ns,
    case
        when s.start_unix_nano != 0 and s.start_unix_nano + s.duration_ns != 0 then s.duration_ns / 1e6
    end as duration_ms,
    case s.status
        when 1 then 'ok'
        when 2 then 'error'
        else 'unset'
    end as status,
    s.status_message,
    s.stage,
    o.scope,
    map(s.attribute_keys, s.attribute_values) as attributes,
    o.resource,
    s.events,
    s.links,
    s.dropped_attributes_count,
    s.dropped_events_count,
    s.dropped_links_count,
    s.http_status,
    s.model,
    s.model_version,
    s.batch_size,
    s.gpu_time_ms,
    s.input_tokens,
    s.output_tokens,
    s.peer,
    s.attribute_types,
    s.trace_state,
    s.flags,
    s.batch_seq
from span_rows as s
inner join origin_rows as o on o.origin_id = s.origin_id
