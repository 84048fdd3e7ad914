-- One row is one ledger key of one request, sealed or not; see all_requests. No order is promised.
create view all_ledger as
select *
from ledger_rows
union all by name
select l.* exclude (segment)
from read_parquet(getvariable('sealed_ledger')) as l
anti join reopened_rows as z on z.trace_id = l.trace_id and l.segment < z.before_segment
