-- One row is one trace with a span of $service that fits everything that is not null; $most rows at most, newest first.
-- Times are bounds on the start, both inclusive; durations are bounds in nanoseconds. $keys and $texts are lists of one
-- length: each key, of the span or of its resource, has the text.
select trace_id
from spans
where
    service = $service::varchar
    and start_time between make_timestamp($since_us::bigint) and make_timestamp($until_us::bigint)
    and ($operation::varchar is null or operation = $operation::varchar)
    and ($least_ns::bigint is null or duration_ns >= $least_ns::bigint)
    and ($most_ns::bigint is null or duration_ns <= $most_ns::bigint)
    and ($kind::varchar is null or kind = $kind::varchar)
    and ($status::varchar[] is null or list_contains($status::varchar[], status))
    and ($scope::varchar is null or scope = $scope::varchar)
    and (
        len($keys::varchar[]) = 0
        or list_bool_and(
            list_transform(
                list_zip($keys::varchar[], $texts::varchar[]),
                lambda pair: coalesce(coalesce(attributes[pair[1]], resource[pair[1]]) = pair[2], false)
            )
        )
    )
group by trace_id
order by
    max(start_unix_nano) desc,
    trace_id
limit $most
