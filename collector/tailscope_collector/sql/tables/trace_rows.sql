-- One row is one trace that was settled and is not sealed: the batches of its first and last span, and how many spans it
-- had then. Where to look again when a late span arrives, and what has been quiet long enough to be sealed.
create table trace_rows (
    trace_id varchar,
    first_seq bigint,
    last_seq bigint,
    span_count bigint
)
