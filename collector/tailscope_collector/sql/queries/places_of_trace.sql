-- One row is one segment that has spans of the trace $trace_id. Ordered by number.
select distinct segment
from sealed_traces
where trace_key = trace_key($trace_id) and segment > 0
order by segment
