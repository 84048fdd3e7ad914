-- Takes the segments $segments from the list.
delete from segment_rows
where segment in (select unnest($segments::bigint[]))
