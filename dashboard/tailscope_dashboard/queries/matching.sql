-- One row: how many requests the filters of "Slow requests" leave.
-- Parameters: the selection, min_ms, only_errors, and find, a text looked for in trace id, operation and instance.
select count(*) as requests
from requests
where $selection
    and ($min_ms is null or duration_ms >= $min_ms)
    and (not $only_errors or status = 'error')
    and ($find is null or contains(lower(concat_ws(' ', trace_id, operation, instance, model)), lower($find)))
