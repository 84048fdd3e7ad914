-- Appends the traces in the registered Arrow table `chosen_traces`.
insert into trace_rows by name
select
    trace_id,
    first_seq,
    last_seq,
    span_count
from chosen_traces
