-- One row: the last batch that is in request_rows and ledger_rows; 0 before the first.
select coalesce(max(settled_seq), 0) as settled_seq
from settle_marks
