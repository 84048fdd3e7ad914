-- One row: how many requests the filters of "Slow requests" leave.
-- Parameters: the selection, min_ms, only_errors, find (a text looked for in trace id, operation, instance and model),
-- instance, version, traces where some_traces, and stage, in which the request spends half of its time or more.
select count(*) as requests
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
