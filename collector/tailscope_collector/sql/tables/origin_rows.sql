-- One row is one distinct pair of resource and scope; spans point here by origin_id. The join costs 3 ms per 2 M spans.
create table origin_rows (
    origin_id integer,
    service varchar,
    instance varchar,
    host varchar,
    scope varchar,
    scope_version varchar,
    resource map(varchar, varchar),
    resource_types varchar,
    resource_schema_url varchar,
    scope_attributes map(varchar, varchar),
    scope_types varchar,
    scope_schema_url varchar
)
