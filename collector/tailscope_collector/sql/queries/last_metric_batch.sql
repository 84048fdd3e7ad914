-- One row: the number of the last batch of samples; 0 where none is waiting to be sealed.
select coalesce(max(batch_seq), 0) as batch_seq
from metric_rows
