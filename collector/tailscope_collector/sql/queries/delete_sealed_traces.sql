-- Forgets which traces lay in the segments $segments, and which were sampled out when they were made.
delete from sealed_traces
where abs(segment) in (select unnest($segments::bigint[]))
