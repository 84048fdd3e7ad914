-- Appends the registered Arrow table `origin_batch`.
insert into origin_rows by name
select *
from origin_batch
