-- One row is one sealed span of the traces in the registered Arrow table `chosen_traces`, as the analyzer takes them.
-- Only the segments of the variable `chosen_spans` are read. No order is promised.
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
    s.stage,
    s.start_unix_nano,
    coalesce(s.duration_ns, s.raw_duration_ns) as duration_ns,
    s.attributes,
    s.events,
    s.links,
    s.sample_weight
from read_parquet(getvariable('chosen_spans')) as s
where s.trace_id in (select trace_id from chosen_traces)
