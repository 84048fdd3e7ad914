-- One row is one segment that counts. Ordered by number.
select segment
from segment_rows
order by segment
