-- One row is one report that somebody kept, as it was then.
create table finding_rows (
    finding_id varchar,
    name varchar,
    created timestamp,
    report varchar
)
