-- One row: the report that is kept under $finding_id; none where there is no such.
select report
from finding_rows
where finding_id = $finding_id
