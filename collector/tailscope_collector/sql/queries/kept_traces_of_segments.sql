-- One row is one trace that a kept finding names and that has spans in one of the segments $segments. Ordered by trace.
select distinct k.trace_id
from kept_rows as k
inner join sealed_traces as s on s.trace_key = trace_key(k.trace_id)
where s.segment in (select unnest($segments::bigint[]))
order by k.trace_id
