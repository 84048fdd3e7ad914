-- One row is one row number of the registered Arrow table `suspects` whose span is stored already. Ordered by it.
select s.row_number
from suspects as s
where exists (
    select 1
    from span_rows as r
    where
        r.start_unix_nano between $earliest and $latest
        and r.start_unix_nano = s.start_unix_nano
        and r.trace_id = s.trace_id
        and r.span_id = s.span_id
        and r.kind = s.kind
)
order by s.row_number
