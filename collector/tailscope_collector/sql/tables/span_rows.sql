-- One row is one span, as it was acknowledged. Append-only; no key, index or constraint: they cost half of the
-- throughput and most of the reported recovery failures. Text lists instead of a map: a map checks every key on
-- insert (4 us a span); the view `spans` makes the map. Numbers of kind and status are OTLP's.
create table span_rows (
    trace_id varchar,
    span_id varchar,
    parent_span_id varchar,
    origin_id integer,
    operation varchar,
    kind tinyint,
    start_time timestamp,
    start_unix_nano bigint,
    duration_ns bigint,
    status tinyint,
    status_message varchar,
    stage varchar,
    attribute_keys varchar[],
    attribute_values varchar[],
    attribute_types varchar,
    http_status bigint,
    model varchar,
    model_version varchar,
    batch_size bigint,
    gpu_time_ms double,
    input_tokens bigint,
    output_tokens bigint,
    peer varchar,
    events struct(
        time_unix_nano bigint,
        name varchar,
        attributes map(varchar, varchar),
        attribute_types varchar,
        dropped_attributes_count bigint
    )[],
    links struct(
        trace_id varchar,
        span_id varchar,
        trace_state varchar,
        attributes map(varchar, varchar),
        attribute_types varchar,
        dropped_attributes_count bigint,
        flags bigint
    )[],
    dropped_attributes_count bigint,
    dropped_events_count bigint,
    dropped_links_count bigint,
    trace_state varchar,
    flags bigint,
    sample_weight double,
    batch_seq bigint
)
