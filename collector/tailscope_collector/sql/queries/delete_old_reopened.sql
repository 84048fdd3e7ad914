-- Forgets the marks that say nothing about any segment which still counts.
delete from reopened_rows
where before_segment <= (select coalesce(min(segment), 9223372036854775807) from segment_rows)
