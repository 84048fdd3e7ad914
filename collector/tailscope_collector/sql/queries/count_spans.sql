-- One row: how many spans are stored.
select
    (select count(*) from span_rows)
    + (select coalesce(sum(span_count), 0) from segment_rows)::bigint as span_count
