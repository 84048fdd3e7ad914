-- Deletes the spans up to batch $upto of the traces in the registered Arrow table `chosen_traces`.
delete from span_rows
where batch_seq <= $upto and trace_id in (select trace_id from chosen_traces)
