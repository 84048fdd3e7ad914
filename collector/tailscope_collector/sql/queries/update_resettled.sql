-- Lets the traces in the registered Arrow table `reopened` begin after batch $upto: what came before is sealed.
update trace_rows
set
    first_seq = $upto + 1,
    span_count = (
        select count(*)
        from span_rows as s
        where s.trace_id = trace_rows.trace_id and s.batch_seq > $upto
    )
where trace_id in (select trace_id from reopened)
