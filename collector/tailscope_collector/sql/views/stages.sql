-- One row is one ledger key of one request: where its time went. Sums to the request's duration. No order is promised.
create view stages as
select
    trace_id,
    service,
    stage,
    category,
    operation,
    self_ns / 1e6 as self_ms
from all_ledger
