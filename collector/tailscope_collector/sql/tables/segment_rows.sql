-- One row is one sealed segment: the folder segments/<segment>/ with its Parquet files. What is not listed here is
-- not read: a folder that a killed process left behind is no segment. Times are those of its spans and samples.
create table segment_rows (
    segment bigint,
    sealed_unix_s bigint,
    first_unix_nano bigint,
    last_unix_nano bigint,
    first_seq bigint,
    last_seq bigint,
    span_count bigint,
    request_count bigint,
    ledger_count bigint,
    metric_count bigint,
    size_bytes bigint,
    kept boolean
)
