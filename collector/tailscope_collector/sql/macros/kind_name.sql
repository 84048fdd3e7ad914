-- The word for OTLP's number of a span's kind.
create macro kind_name(number) as
coalesce(['internal', 'server', 'client', 'producer', 'consumer'][number], 'unspecified')
