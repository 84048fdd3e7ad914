-- One row is one span of the traces in the registered Arrow table `chosen_traces`, as it lies in the files of the variable
-- `chosen_files`. Ordered as a segment is.
select *
from read_parquet(getvariable('chosen_files'))
where trace_id in (select trace_id from chosen_traces)
order by
    trace_id,
    start_unix_nano,
    span_id
