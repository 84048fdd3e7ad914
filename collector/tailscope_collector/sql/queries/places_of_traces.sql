-- One row is one segment that has spans of one of the traces $trace_ids. Ordered by number.
select distinct segment
from sealed_traces
where segment > 0 and trace_key in (select trace_key(unnest($trace_ids::varchar[])))
order by segment
