-- One row is one trace in the registered Arrow table `chosen_traces` that was settled again with spans after batch $upto.
-- Ordered by trace.
select t.trace_id
from trace_rows as t
where t.last_seq > $upto and t.trace_id in (select trace_id from chosen_traces)
order by t.trace_id
