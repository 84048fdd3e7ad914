-- The n slowest requests, slowest first: from slowest(10).
create macro slowest(n) as table
select *
from requests
order by duration_ms desc nulls last, trace_id
limit n
