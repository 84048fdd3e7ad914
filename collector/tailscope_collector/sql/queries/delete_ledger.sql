-- Deletes the rows of the traces in the registered Arrow table `known_traces`, to be made again.
delete from ledger_rows
where trace_id in (select trace_id from known_traces)
