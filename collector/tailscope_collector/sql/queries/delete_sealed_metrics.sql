-- Deletes the samples up to batch $upto.
delete from metric_rows
where batch_seq <= $upto
