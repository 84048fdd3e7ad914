-- Marks that what segments know of the registered traces `reopened` does not count any more.
insert into reopened_rows
select
    trace_id,
    (select coalesce(max(segment), 0) + 1 from segment_rows)
from reopened
