-- Deletes one kept report; its traces are delete_kept's.
delete from finding_rows
where finding_id = $finding_id
