-- Appends the registered Arrow table `span_batch`, whose columns are those of span_rows but for batch_seq ($batch_seq).
insert into span_rows by name
select
    *,
    $batch_seq as batch_seq
from span_batch
