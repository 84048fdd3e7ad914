-- One row is one report that somebody kept (tailscope report --keep NAME), as it was told then. traces: the ids of those
-- that it names, which outlive retention. report: its JSON. No order is promised.
create view findings as
select
    f.finding_id,
    f.name,
    f.created,
    coalesce(list(k.trace_id order by k.trace_id) filter (where k.trace_id is not null), []) as traces,
    f.report
from finding_rows as f
left join kept_rows as k on k.finding_id = f.finding_id
group by all
