-- One row per step of the window that has requests: its number, how many are stored, and how long the longest took.
-- Parameters: the selection, since, and step_us, the length of a step in microseconds.
select
    (epoch_us(start_time) - epoch_us($since)) // $step_us as step,
    count(*) as requests,
    max(duration_ms) as longest_ms
from requests
where $selection
group by 1
order by 1
