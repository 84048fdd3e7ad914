-- One row: the bounds of the segments $segments together.
select
    coalesce(min(first_unix_nano), 0) as first_unix_nano,
    coalesce(max(last_unix_nano), 0) as last_unix_nano,
    coalesce(min(first_seq), 0) as first_seq,
    coalesce(max(last_seq), 0) as last_seq
from segment_rows
where segment in (select unnest($segments::bigint[]))
