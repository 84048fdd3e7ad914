-- One row per value of a column of the selected requests that has one, the thirty busiest, in order of their first.
-- Parameters: the selection, and column, one of a closed list.
with counted as (
    select
        cast($column as varchar) as value,
        count_w(sample_weight) as requests,
        min(start_time) as first_start
    from requests
    where $selection and $column is not null
    group by 1
    order by requests desc, value
    limit 30
)

select *
from counted
order by first_start, value
