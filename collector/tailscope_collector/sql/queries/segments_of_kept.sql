-- One row is one segment that has spans of a trace which a kept finding names. Ordered by number.
select distinct s.segment
from kept_rows as k
inner join sealed_traces as s on s.trace_key = trace_key(k.trace_id)
order by s.segment
