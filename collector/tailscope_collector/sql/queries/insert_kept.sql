-- Appends the traces in the registered Arrow table `exemplars` as those of the kept report $finding_id.
insert into kept_rows
select
    $finding_id,
    trace_id
from exemplars
