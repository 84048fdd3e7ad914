-- One row is one of the origins in the registered Arrow table `chosen_origins`. No order is promised.
select *
from origin_rows
where origin_id in (select origin_id from chosen_origins)
