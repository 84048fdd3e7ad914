-- One row: how many of the selected requests are stored, when the first and the last began, and whether any of them
-- stands for others.
-- Parameters: the selection.
select
    count(*) as requests,
    min(start_time) as first_start,
    max(start_time) as last_start,
    coalesce(bool_or(sample_weight != 1), false) as sampled
from requests
where $selection
