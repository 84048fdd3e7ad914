"""Questions to start from on the SQL page, one or two for each view of the store."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "requests: slowest operations": """select service, operation, count_w(sample_weight) as n,
       round(p50w(duration_ms, sample_weight), 1) as p50_ms,
       round(p99w(duration_ms, sample_weight), 1) as p99_ms
from requests
group by all
order by p99_ms desc""",
    "requests: the ten slowest": """select trace_id, start_time, operation, duration_ms, status, instance
from requests
order by duration_ms desc
limit 10""",
    "stages: where the time goes": """select s.service, stage, category, count_w(sample_weight) as n,
       round(sum(self_ms * sample_weight) / sum(sample_weight), 2) as mean_ms,
       round(p99w(self_ms, sample_weight), 2) as p99_ms
from stages as s
join requests using (trace_id)
group by all
order by mean_ms desc""",
    "stages: queue by instance": """select instance, count_w(sample_weight) as n,
       round(p99w(self_ms, sample_weight), 1) as queue_p99_ms
from stages
join requests using (trace_id)
where stage = 'queue'
group by instance
order by queue_p99_ms desc""",
    "spans: the busiest operations": """select service, operation, kind, count_w(sample_weight) as n,
       round(p99w(duration_ms, sample_weight), 2) as p99_ms
from spans
group by all
order by n desc
limit 50""",
    "dependencies: who calls whom": """select *
from dependencies
order by p99_ms desc""",
}
"""Read-only SELECTs by the name in the list."""

VIEWS: Final = ("requests", "stages", "spans", "dependencies")
"""Views whose columns the page shows."""
