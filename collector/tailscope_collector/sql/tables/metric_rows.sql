-- One row is one sample of a resource: a host's or a container's memory, a GPU's clock. Filled when metrics are received.
create table metric_rows (
    time timestamp,
    time_unix_nano bigint,
    service varchar,
    instance varchar,
    host varchar,
    metric varchar,
    unit varchar,
    value double,
    attributes map(varchar, varchar)
)
