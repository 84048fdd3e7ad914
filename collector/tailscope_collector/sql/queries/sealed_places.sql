-- One row is one of the registered traces `changed` and a segment that has spans of it (negative: it was sampled out
-- then). Ordered by trace and segment.
select distinct
    c.trace_id,
    s.segment
from changed as c
inner join sealed_traces as s on s.trace_key = c.trace_key
order by
    c.trace_id,
    s.segment
