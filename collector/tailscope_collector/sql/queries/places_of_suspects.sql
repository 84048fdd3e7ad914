-- One row is one segment that has spans of a trace in the registered Arrow table `suspects`. Ordered by number.
select distinct p.segment
from suspects as s
inner join sealed_traces as p on p.trace_key = trace_key(s.trace_id)
where p.segment > 0
order by p.segment
