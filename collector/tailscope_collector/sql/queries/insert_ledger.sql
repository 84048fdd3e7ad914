-- Appends the registered Arrow table `ledger_batch`.
insert into ledger_rows by name
select *
from ledger_batch
