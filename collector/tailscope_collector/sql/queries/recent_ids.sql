-- One row is one of the last $rows stored spans: what its fingerprint is made of. No order is promised.
select
    unhex(trace_id) as trace_id,
    unhex(span_id) as span_id,
    kind,
    start_unix_nano
from span_rows
where rowid >= (select coalesce(max(rowid), 0) from span_rows) - $rows
