-- Appends the traces of kept findings that lay in the segments $segments as those of $segment.
insert into sealed_traces
select distinct
    trace_key(k.trace_id),
    $segment::bigint
from kept_rows as k
inner join sealed_traces as s on s.trace_key = trace_key(k.trace_id)
where s.segment in (select unnest($segments::bigint[]))
