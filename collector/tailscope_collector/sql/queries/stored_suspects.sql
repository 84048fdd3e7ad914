-- One row is one row number of the registered Arrow table `suspects` whose span is stored already. Only the segments of
-- the variable `chosen_spans` are read beside the spans that are not sealed. Ordered by it.
select s.row_number
from suspects as s
where
    exists (
        select 1
        from span_rows as r
        where
            r.start_unix_nano between $earliest and $latest
            and r.start_unix_nano = s.start_unix_nano
            and r.trace_id = s.trace_id
            and r.span_id = s.span_id
            and r.kind = s.kind
    )
    or exists (
        select 1
        from read_parquet(getvariable('chosen_spans')) as r
        where
            r.start_unix_nano between $earliest and $latest
            and r.start_unix_nano = s.start_unix_nano
            and r.trace_id = s.trace_id
            and r.span_id = s.span_id
            and r.kind = kind_name(s.kind)
    )
order by s.row_number
