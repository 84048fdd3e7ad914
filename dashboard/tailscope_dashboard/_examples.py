"""Questions to start from on the SQL page, one or two for each view of the store, and what they can name.

Owns the texts of the examples. What views and macros are is the analyzer's to say.
"""

from __future__ import annotations

from typing import Final

from tailscope_analyzer.commands._vocabulary import KEYWORDS, MACROS
from tailscope_analyzer.commands._vocabulary import VIEWS as MEANINGS

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
    "requests: p99 by the minute": """select time_bucket(interval 1 minute, start_time) as minute, operation,
       count_w(sample_weight) as n,
       round(p99w(duration_ms, sample_weight), 1) as p99_ms
from requests
group by all
order by minute""",
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
    "metrics: GPUs by the minute": """select time_bucket(interval 1 minute, time) as minute,
       attributes['hw.id'] as gpu, count(*) as n, round(avg(value), 3) as utilisation
from metrics
where metric = 'hw.gpu.utilization'
group by all
order by minute""",
    "span_tree: the deepest traces": """select trace_id, max(depth) as depth, count(*) as spans,
       count(*) filter (where is_orphan) as orphans
from span_tree
where trace_id in (select trace_id from slowest(20))
group by trace_id
order by depth desc""",
    "findings: reports that were kept": """select name, created, len(traces) as traces,
       report->>'$.requests' as requests
from findings
order by created desc""",
    "tree_of: the slowest request": """select repeat('  ', depth) || operation as span, service,
       duration_ms, critical
from tree_of((select trace_id from slowest(1)))
order by start_unix_nano, depth""",
}
"""Read-only SELECTs by the name in the list, which begins with the view."""

VIEWS: Final = ("requests", "stages", "spans", "dependencies", "metrics", "span_tree", "findings")
"""Views whose columns the page shows."""

__all__ = ["EXAMPLES", "KEYWORDS", "MACROS", "MEANINGS", "VIEWS"]
