-- One row: how many spans that are not sealed came up to batch $quiet.
select count(*) as span_count
from span_rows
where batch_seq <= $quiet
