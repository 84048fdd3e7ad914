-- Deletes the traces of one kept report; retention may have them then.
delete from kept_rows
where finding_id = $finding_id
