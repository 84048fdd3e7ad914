-- One row is one trace that is no request but loads something or runs a batch, begun between $first and $last
-- (nanoseconds since 1970). $most rows at most, the earliest first, then by id.
select trace_id
from spans
where
    start_unix_nano between $first and $last
    and coalesce(parent_span_id, '') = ''
    and (stage like 'coldstart%' or (len(links) > 0 and kind in ('internal', 'unspecified')))
group by trace_id
order by
    min(start_unix_nano),
    trace_id
limit $most
