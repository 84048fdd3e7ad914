-- Lists one segment: from now on it counts.
insert into segment_rows by name
select
    $segment as segment,
    $sealed_unix_s as sealed_unix_s,
    $first_unix_nano as first_unix_nano,
    $last_unix_nano as last_unix_nano,
    $first_seq as first_seq,
    $last_seq as last_seq,
    $span_count as span_count,
    $request_count as request_count,
    $ledger_count as ledger_count,
    $metric_count as metric_count,
    $size_bytes as size_bytes,
    $kept as kept
