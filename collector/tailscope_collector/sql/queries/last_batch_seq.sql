-- One row: the number of the last batch that was ever committed; 0 before the first.
select
    greatest(
        (select coalesce(max(batch_seq), 0) from span_rows),
        (select coalesce(max(settled_seq), 0) from settle_marks),
        (select coalesce(max(last_seq), 0) from segment_rows)
    ) as batch_seq
