-- One row is one sample of a resource. No order is promised.
create view metrics as
select
    time,
    time_unix_nano,
    service,
    instance,
    host,
    metric,
    unit,
    value,
    attributes,
    kind
from metric_rows
union all
select
    time,
    time_unix_nano,
    service,
    instance,
    host,
    metric,
    unit,
    value,
    attributes,
    kind
from read_parquet(getvariable('sealed_metrics'))
