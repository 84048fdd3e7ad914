-- One row per step of time, and one per batch size and bucket of the wait in queues (`grouped` says which): how many
-- requests there were, how many of them waited, and how long. A wait of nothing is its own bucket, null.
-- Requests are those of some stretches of time; one pass, because the ledger is long.
-- Parameters: the selection, stretches, since, step_us, and per_octave, the number of buckets by which a wait doubles.
with chosen as materialized (
    select
        trace_id,
        start_time,
        batch_size,
        sample_weight
    from requests
    where $selection and $stretches
),

waits as (
    select
        trace_id,
        sum(self_ms) as wait_ms
    from stages
    where (stage = 'queue' or stage like 'queue.%') and trace_id in (select trace_id from chosen)
    group by trace_id
),

told as (
    select
        time_bucket(to_microseconds($step_us), start_time, $since) as step,
        batch_size,
        case when wait_ms >= 0.01 then cast(floor(log2(wait_ms) * $per_octave) as integer) end as bucket,
        wait_ms,
        sample_weight
    from chosen
    left join waits using (trace_id)
)

select
    case when grouping(step) = 0 then 'step' else 'batch' end as grouped,
    step as start_time,
    batch_size,
    bucket,
    count_w(sample_weight) as requests,
    count_w(case when wait_ms is not null then sample_weight end) as queued,
    coalesce(sum(wait_ms * sample_weight), 0) as wait_ms,
    sum(coalesce(wait_ms, 0) * sample_weight) / sum(sample_weight) as mean_wait_ms
from told
group by grouping sets ((step), (batch_size, bucket))
order by grouped, start_time, batch_size, bucket
