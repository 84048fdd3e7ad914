-- One row per step of time, metric and device: the mean of its samples. The eight devices with the most samples.
-- Parameters: since, until, step_us.
with samples as (
    select
        time,
        metric,
        coalesce(unit, '') as unit,
        concat_ws(' ', coalesce(host, instance), attributes['hw.id']) as device,
        value
    from metrics
    where
        time >= $since
        and time < $until
        and metric in ('hw.gpu.utilization', 'gpu.clock_mhz', 'hw.temperature', 'hw.power')
        and coalesce(attributes['hw.type'], 'gpu') = 'gpu'
),

busiest as (
    select device
    from samples
    group by device
    order by count(*) desc, device
    limit 8
)

select
    time_bucket(to_microseconds($step_us), time, $since) as start_time,
    metric,
    min(unit) as unit,
    device,
    count(*) as n,
    avg(value) as value
from samples
where device in (select device from busiest)
group by 1, metric, device
order by metric, device, 1
