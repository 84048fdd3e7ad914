-- One row is one trace that got spans after it was sealed: its request and ledger in segments before before_segment do
-- not count any more.
create table reopened_rows (
    trace_id varchar,
    before_segment bigint
)
