-- One row is one of the traces in the registered Arrow table `chosen_traces` that has sealed spans and over $most spans
-- in all, and how many. Only the segments of the variable `chosen_spans` are read. No order is promised.
select
    c.trace_id,
    c.span_count + count(*) as span_count
from read_parquet(getvariable('chosen_spans')) as s
inner join chosen_traces as c on c.trace_id = s.trace_id
group by
    c.trace_id,
    c.span_count
having c.span_count + count(*) > $most
