-- One row is one span of the traces in the registered Arrow table `chosen_traces`, as the analyzer takes them
-- (attributes still as two lists). Only batches from $first on are read. No order is promised.
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
    s.stage,
    s.start_unix_nano,
    s.duration_ns,
    s.attribute_keys,
    s.attribute_values,
    s.events,
    s.links,
    s.sample_weight
from span_rows as s
inner join origin_rows as o on o.origin_id = s.origin_id
where s.batch_seq >= $first and s.trace_id in (select trace_id from chosen_traces)
