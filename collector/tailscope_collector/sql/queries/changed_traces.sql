-- One row is one trace that got spans in the batches after $settled up to $upto. first_seq is the batch of its first
-- span that is not sealed, last_seq of its last; known says that it was settled before and has rows to replace.
-- fresh_count: spans in these batches alone. trace_key: see sealed_traces. Ordered by first_seq and trace_id.
with fresh as (
    select
        trace_id,
        min(batch_seq) as first_seq,
        max(batch_seq) as last_seq,
        count(*) as span_count
    from span_rows
    where batch_seq > $settled and batch_seq <= $upto
    group by trace_id
)
select
    f.trace_id,
    trace_key(f.trace_id) as trace_key,
    least(f.first_seq, coalesce(r.first_seq, f.first_seq)) as first_seq,
    f.last_seq,
    f.span_count + coalesce(r.span_count, 0) as span_count,
    f.span_count as fresh_count,
    r.trace_id is not null as known
from fresh as f
left join trace_rows as r on r.trace_id = f.trace_id
order by
    first_seq,
    f.trace_id
