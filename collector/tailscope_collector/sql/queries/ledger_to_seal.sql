-- One row is one ledger key of the traces in the registered Arrow table `chosen_traces`. Ordered by the request's start.
select
    *,
    $segment::bigint as segment
from ledger_rows
where trace_id in (select trace_id from chosen_traces)
order by
    start_unix_nano,
    trace_id
