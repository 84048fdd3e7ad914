-- One row per service and operation whose spans know their time on the GPU, the most GPU time first.
-- Requests are those of some stretches of time, and each counts for stands_for.
-- Parameters: the selection, stretches, near (for spans), stands_for.
with chosen as materialized (
    select trace_id
    from requests
    where $selection and $stretches
)

select
    service,
    operation,
    count_w(sample_weight * $stands_for) as spans,
    sum(duration_ms * sample_weight) / sum(sample_weight) as mean_wall_ms,
    sum(gpu_time_ms * sample_weight) / sum(sample_weight) as mean_gpu_ms,
    quantile_cont(duration_ms, 0.95) as p95_wall_ms,
    quantile_cont(gpu_time_ms, 0.95) as p95_gpu_ms,
    sum(gpu_time_ms * sample_weight) / nullif(sum(duration_ms * sample_weight), 0) as gpu_share
from spans
where
    gpu_time_ms is not null
    and duration_ms is not null
    and $near
    and trace_id in (select trace_id from chosen)
group by service, operation
order by sum(gpu_time_ms * sample_weight) desc, service, operation
limit 50
