-- One row per service and operation that has requests, the busiest first. Parameters: none.
select
    service,
    operation,
    count_w(sample_weight) as requests
from requests
group by service, operation
order by requests desc, service, operation
limit 500
