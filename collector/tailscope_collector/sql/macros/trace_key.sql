-- The number of the last 15 hex digits of a trace id; see sealed_traces.
create macro trace_key(id) as ('0x' || right(id, 15))::bigint
