-- One row is one segment that counts. Ordered by when it was sealed.
select
    segment,
    sealed_unix_s,
    size_bytes,
    kept
from segment_rows
order by
    sealed_unix_s,
    segment
