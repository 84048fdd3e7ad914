-- Appends one kept report.
insert into finding_rows by name
select
    $finding_id as finding_id,
    $name as name,
    (now() at time zone 'UTC')::timestamp as created,
    $report as report
