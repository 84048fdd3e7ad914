-- Deletes the marks of the registered traces `reopened`, to be made again.
delete from reopened_rows
where trace_id in (select trace_id from reopened)
