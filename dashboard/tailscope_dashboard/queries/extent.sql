-- One row: how many requests there are, and when the first and the last began.
select
    count(*) as requests,
    min(start_time) as first_start,
    max(start_time) as last_start
from requests
