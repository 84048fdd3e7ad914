-- One row: how many of the selected requests there are, and when the first and the last began.
-- Parameters: the selection.
select
    count(*) as requests,
    min(start_time) as first_start,
    max(start_time) as last_start
from requests
where $selection
