-- The word for OTLP's number of a span's status.
create macro status_name(number) as
coalesce(['ok', 'error'][number], 'unset')
