-- One row is one sample of a resource: a host's or a container's memory, a GPU's clock, a quantile of a histogram. kind
-- is gauge, counter (a monotonic sum since the sender started), updown (another sum) or delta (a sum since its last one).
create table metric_rows (
    time timestamp,
    time_unix_nano bigint,
    service varchar,
    instance varchar,
    host varchar,
    metric varchar,
    unit varchar,
    value double,
    attributes map(varchar, varchar),
    kind varchar,
    batch_seq bigint
)
