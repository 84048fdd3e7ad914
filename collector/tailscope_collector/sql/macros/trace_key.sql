-- A number of 60 bits made of a whole trace id: ids that share an end, as padded ones do, have different ones. See
-- sealed_traces.
create macro trace_key(id) as (md5_number_lower(id) >> 4)::bigint
