-- One row is one trace that has spans in a segment: trace_key is a number made of its id (8 bytes instead of 32; a
-- trace that shares it is looked for in vain, no more). A negative segment: sampled out when that one was made.
create table sealed_traces (
    trace_key bigint,
    segment bigint
)
