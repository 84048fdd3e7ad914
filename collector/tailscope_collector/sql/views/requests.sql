-- One row is one request: the entry span of a trace. Settled before a query that reads it. No order is promised.
create view requests as
select
    trace_id,
    service,
    operation,
    start_time,
    duration_ms,
    status,
    http_status,
    model,
    version,
    instance,
    ttft_ms,
    tpot_ms,
    input_tokens,
    output_tokens,
    batch_size,
    cold_start,
    span_count,
    complete,
    sample_weight
from all_requests
