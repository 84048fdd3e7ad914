-- One row is one batch after $settled with its number of spans. Ordered by batch.
select
    batch_seq,
    count(*) as span_count
from span_rows
where batch_seq > $settled
group by batch_seq
order by batch_seq
