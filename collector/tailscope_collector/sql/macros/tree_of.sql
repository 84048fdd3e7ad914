-- One row is one span of the trace `id` (of all traces where it is null) with its place in the tree of its trace:
-- from tree_of('...'). A filter on the view span_tree does not reach into the recursion; this argument does.
-- root: span id at the top of its tree; depth: 0 there. is_orphan: the span names a parent that is not in the trace
-- (it is then the top of a tree of its own), or is on a cycle of parents or below one (root and depth are null).
-- critical: the walk back from the end of the root, over the child that finishes last and then the one that finishes
-- last before that one began, passes through it. Two spans that share an id have one place. No order is promised.
create macro tree_of(id) as table
with recursive nodes as (
    select
        trace_id,
        span_id,
        min(parent_span_id) as parent_span_id,
        min(start_unix_nano) as start_ns,
        max(start_unix_nano + coalesce(duration_ns, 0)) as end_ns
    from spans
    where id::varchar is null or trace_id = id::varchar
    group by
        trace_id,
        span_id
),
children as (
    select
        c.trace_id,
        c.span_id,
        c.parent_span_id,
        greatest(c.start_ns, p.start_ns) as start_ns,
        least(c.end_ns, p.end_ns) as end_ns
    from nodes as c
    inner join nodes as p on p.trace_id = c.trace_id and p.span_id = c.parent_span_id
    where c.span_id != c.parent_span_id
),
picked as (
    select
        trace_id,
        parent_span_id,
        span_id,
        start_ns
    from children
    where end_ns > start_ns
    qualify row_number() over (partition by trace_id, parent_span_id order by end_ns desc, start_ns, span_id) = 1
    union all
    select
        c.trace_id,
        c.parent_span_id,
        c.span_id,
        c.start_ns
    from picked as later
    inner join children as c
        on c.trace_id = later.trace_id
        and c.parent_span_id = later.parent_span_id
        and c.end_ns <= later.start_ns
    where c.end_ns > c.start_ns
    qualify row_number() over (
        partition by c.trace_id, c.parent_span_id order by c.end_ns desc, c.start_ns, c.span_id
    ) = 1
),
tree as (
    select
        n.trace_id,
        n.span_id,
        n.span_id as root,
        0 as depth,
        true as critical
    from nodes as n
    left join nodes as p on p.trace_id = n.trace_id and p.span_id = n.parent_span_id
    where n.parent_span_id is null or p.span_id is null
    union all
    select
        c.trace_id,
        c.span_id,
        t.root,
        t.depth + 1,
        t.critical and k.span_id is not null
    from tree as t
    inner join children as c on c.trace_id = t.trace_id and c.parent_span_id = t.span_id
    left join picked as k
        on k.trace_id = c.trace_id and k.parent_span_id = c.parent_span_id and k.span_id = c.span_id
)
select
    s.trace_id,
    s.span_id,
    s.parent_span_id,
    s.service,
    s.operation,
    s.start_unix_nano,
    s.duration_ms,
    t.depth,
    t.root,
    t.root is null or (t.depth = 0 and s.parent_span_id is not null) as is_orphan,
    coalesce(t.critical, false) as critical
from spans as s
left join tree as t on t.trace_id = s.trace_id and t.span_id = s.span_id
where id::varchar is null or s.trace_id = id::varchar
