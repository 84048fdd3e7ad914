-- One row is one ledger key of one request; self_ns of a request sums to its duration. start_unix_nano is the request's:
-- a window of time is found without a join.
create table ledger_rows (
    trace_id varchar,
    start_unix_nano bigint,
    service varchar,
    stage varchar,
    category varchar,
    operation varchar,
    self_ns bigint
)
