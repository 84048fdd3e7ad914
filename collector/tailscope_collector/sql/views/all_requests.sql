-- One row is one request, sealed or not, with what the view requests leaves out. A sealed one that got late spans is
-- replaced by the one that was made again. No order is promised.
create view all_requests as
select *
from request_rows
union all by name
select r.* exclude (segment)
from read_parquet(getvariable('sealed_requests')) as r
anti join reopened_rows as z on z.trace_id = r.trace_id and r.segment < z.before_segment
