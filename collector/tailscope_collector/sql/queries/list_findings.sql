-- One row is one kept report. Ordered by time, the newest first.
select
    finding_id,
    name,
    strftime(created, '%Y-%m-%dT%H:%M:%SZ') as created,
    (select count(*) from kept_rows as k where k.finding_id = f.finding_id) as traces
from finding_rows as f
order by
    f.created desc,
    finding_id
