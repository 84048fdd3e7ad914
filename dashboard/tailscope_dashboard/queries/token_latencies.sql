-- One row per measure (ttft, tpot) and bucket of a log scale: how many requests fall into it.
-- Parameters: the selection, and per_octave, the number of buckets by which a latency doubles.
with said as (
    select
        unnest(['ttft', 'tpot']) as measure,
        unnest([ttft_ms, tpot_ms]) as ms,
        sample_weight
    from requests
    where $selection and (ttft_ms is not null or tpot_ms is not null)
)

select
    measure,
    cast(floor(log2(greatest(ms, 0.001)) * $per_octave) as integer) as bucket,
    count_w(sample_weight) as requests
from said
where ms is not null
group by 1, 2
order by 1, 2
