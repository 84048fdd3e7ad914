-- One row per cell of the heat map that has requests: a step of time by a latency bucket on a log scale.
-- A duration that is not positive (a clock that stepped back) counts in the lowest bucket of a microsecond.
-- Parameters: the selection, step_us, and per_octave, the number of buckets by which latency doubles.
select
    time_bucket(to_microseconds($step_us), start_time, $since) as start_time,
    cast(floor(log2(greatest(duration_ms, 0.001)) * $per_octave) as integer) as bucket,
    count_w(sample_weight) as requests,
    count_w(case when status = 'error' then sample_weight end) as errors
from requests
where $selection
group by 1, 2
order by 1, 2
