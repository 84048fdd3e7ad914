-- One row is a span of another trace that links to this trace, or that names the same batch; ordered by start.
-- A batch id counts within its process. Parameters: trace_id, service and instance of the span, batch_id (null where it
-- names none), since, until (when such a span may have begun), rows.
select
    case when linking then 'links here' else 'same batch' end as relation,
    trace_id,
    span_id,
    service,
    operation,
    start_time,
    duration_ms,
    status
from (
    select
        *,
        len(list_filter(links, lambda link: link.trace_id = $trace_id)) > 0 as linking
    from spans
    where start_time >= $since
        and start_time < $until
        and trace_id != $trace_id
) as near
where coalesce(linking, false)
    or (
        $batch_id is not null
        and service = $service
        and instance is not distinct from $instance
        and attributes['batch.id'] = $batch_id
    )
order by start_time, trace_id, span_id
limit $rows
