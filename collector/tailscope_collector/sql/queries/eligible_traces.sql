-- One row is one settled trace that has been quiet since batch $quiet, or that began at batch $stale or before: it can be
-- sealed. sealed_before, sampled_out: what became of the spans that it had before. Ordered by its first batch.
with eligible as (
    select
        *,
        trace_key(trace_id) as trace_key
    from trace_rows
    where last_seq <= $quiet or first_seq <= $stale
)
select
    trace_id,
    first_seq,
    last_seq,
    span_count,
    trace_key in (select trace_key from sealed_traces where segment > 0) as sealed_before,
    trace_key in (select trace_key from sealed_traces where segment < 0) as sampled_out
from eligible
order by first_seq
