-- One row per request and stage of a few requests: where their time went, in milliseconds.
-- Parameters: trace_ids.
select
    trace_id,
    coalesce(stage, 'other') as stage,
    sum(self_ms) as self_ms
from stages
where trace_id in $trace_ids
group by 1, 2
order by trace_id, self_ms desc, stage
