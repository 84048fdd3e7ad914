-- One row is one name and kind of the spans of $service ($kind where it is not null); $most rows at most, by name.
select distinct
    operation,
    kind
from spans
where service = $service::varchar and ($kind::varchar is null or kind = $kind::varchar)
order by
    operation,
    kind
limit $most
