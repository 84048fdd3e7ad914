-- One row is one span of the segments of the variable `chosen_spans`: what its fingerprint is made of. No order is
-- promised.
select
    unhex(trace_id) as trace_id,
    unhex(span_id) as span_id,
    coalesce(list_position(['internal', 'server', 'client', 'producer', 'consumer'], kind), 0)::tinyint as kind,
    start_unix_nano
from read_parquet(getvariable('chosen_spans'))
