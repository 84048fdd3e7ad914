-- One row is one row of ledger.parquet of the traces in the registered Arrow table `chosen_traces`, as it lies in the files
-- of the variable `chosen_files`; what was replaced by later rows is left out. Ordered by start.
select f.*
from read_parquet(getvariable('chosen_files')) as f
anti join reopened_rows as z on z.trace_id = f.trace_id and f.segment < z.before_segment
where f.trace_id in (select trace_id from chosen_traces)
order by
    f.start_unix_nano,
    f.trace_id
