-- Appends the registered Arrow table `request_batch`.
insert into request_rows by name
select *
from request_batch
