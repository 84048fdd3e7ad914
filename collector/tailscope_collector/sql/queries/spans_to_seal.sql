-- One row is one span of the batches after $after up to $upto of the traces in the registered Arrow table
-- `chosen_traces`, whose ids lie from $first to $last. Ordered as a segment is: by trace and start.
select *
from span_rows
where
    batch_seq > $after
    and batch_seq <= $upto
    and trace_id between $first and $last
    and trace_id in (select trace_id from chosen_traces)
order by
    trace_id,
    start_unix_nano,
    span_id,
    kind
