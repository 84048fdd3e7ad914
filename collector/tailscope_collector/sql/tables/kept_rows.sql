-- One row is one trace that a kept report names: it outlives retention.
create table kept_rows (
    finding_id varchar,
    trace_id varchar
)
