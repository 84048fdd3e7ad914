-- Appends the registered Arrow table `ledger_batch`, with the start of each row's request (`request_batch`).
insert into ledger_rows by name
select
    l.trace_id,
    r.start_unix_nano,
    l.service,
    l.stage,
    l.category,
    l.operation,
    l.self_ns
from ledger_batch as l
inner join request_batch as r on r.trace_id = l.trace_id
