-- One row: the first number that no segment has, nor had: what late spans were told of it holds for ever.
select
    1 + greatest(
        (select coalesce(max(segment), 0) from segment_rows),
        (select coalesce(max(abs(segment)), 0) from sealed_traces),
        (select coalesce(max(before_segment), 0) from reopened_rows)
    ) as segment
