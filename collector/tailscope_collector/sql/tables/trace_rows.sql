-- One row is one trace that was settled: the batch of its first span, and how many spans it had then. Where to look
-- again when a late span arrives.
create table trace_rows (
    trace_id varchar,
    first_seq bigint,
    span_count bigint
)
