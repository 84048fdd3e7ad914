-- One row is one request of the traces in the registered Arrow table `chosen_traces`. Ordered by start.
select *
from request_rows
where trace_id in (select trace_id from chosen_traces)
order by
    start_unix_nano,
    trace_id
