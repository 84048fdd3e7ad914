-- One row per instance and per version of the selected requests, the fifty busiest of each, busiest first.
-- Parameters: the selection.
with counted as (
    select
        'instance' as kind,
        instance as name,
        count_w(sample_weight) as requests
    from requests
    where $selection and instance is not null
    group by instance
    union all
    select
        'version' as kind,
        version as name,
        count_w(sample_weight) as requests
    from requests
    where $selection and version is not null
    group by version
)

select
    kind,
    name,
    requests
from counted
qualify row_number() over (partition by kind order by requests desc, name) <= 50
order by kind, requests desc, name
