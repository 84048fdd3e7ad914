-- One row is one ledger key of one request; self_ns of a request sums to its duration.
create table ledger_rows (
    trace_id varchar,
    service varchar,
    stage varchar,
    category varchar,
    operation varchar,
    self_ns bigint,
    self_ms double
)
