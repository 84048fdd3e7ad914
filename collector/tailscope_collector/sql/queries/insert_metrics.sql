-- Appends the registered Arrow table `metric_batch` as one batch. One thread does this: no two batches share a number.
insert into metric_rows by name
select
    *,
    (select coalesce(max(batch_seq), 0) + 1 from metric_rows) as batch_seq
from metric_batch
