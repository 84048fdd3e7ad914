-- Appends the traces in the registered Arrow table `sealed_batch` (trace_id, segment; negative where sampled out).
insert into sealed_traces
select
    trace_key(trace_id),
    segment
from sealed_batch
