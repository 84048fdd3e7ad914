-- One row per request that the filters leave, one sheet of them, in the order asked for (ties by trace id).
-- Parameters: those of matching.sql, sort and descending (a closed list in the code), rows and skip.
select
    trace_id,
    start_time,
    service,
    operation,
    duration_ms,
    status,
    http_status,
    model,
    version,
    instance,
    ttft_ms,
    output_tokens,
    batch_size,
    span_count,
    complete
from requests
left join (
    select
        trace_id,
        sum(self_ms) as stage_ms
    from stages
    where $stage is not null and coalesce(stage, 'other') = $stage
    group by trace_id
) as part using (trace_id)
where $selection
    and ($min_ms is null or duration_ms >= $min_ms)
    and (not $only_errors or status = 'error')
    and ($find is null or contains(lower(concat_ws(' ', trace_id, operation, instance, model)), lower($find)))
    and ($instance is null or instance = $instance)
    and ($version is null or version = $version)
    and (not $some_traces or trace_id in $traces)
    and ($stage is null or part.stage_ms >= duration_ms / 2)
order by $order
limit $rows offset $skip
