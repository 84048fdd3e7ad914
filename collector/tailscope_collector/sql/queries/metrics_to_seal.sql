-- One row is one sample up to batch $upto. Ordered by metric and time.
select * exclude (batch_seq)
from metric_rows
where batch_seq <= $upto
order by
    metric,
    time_unix_nano
