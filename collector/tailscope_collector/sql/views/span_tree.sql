-- One row is one span with its place in the tree of its trace. root is the span at the top of it; a span whose parent
-- is not here is an orphan and a root of its own tree; spans on a cycle have no root: root is null and depth 0.
-- critical marks spans whose own time is on the critical path: the walk back from the end of the root over the child
-- that finishes last. No order is promised.
create view span_tree as
with recursive edges as (
    select
        s.trace_id,
        s.span_id,
        s.parent_span_id,
        s.start_unix_nano,
        s.start_unix_nano + s.duration_ns as end_unix_nano,
        s.parent_span_id is not null and p.span_id is null as is_orphan
    from span_rows as s
    left join (
        select distinct
            trace_id,
            span_id
        from span_rows
    ) as p
        on p.trace_id = s.trace_id and p.span_id = s.parent_span_id
),
walk as (
    select
        trace_id,
        span_id,
        parent_span_id,
        0 as depth,
        span_id as root,
        is_orphan
    from edges
    where parent_span_id is null or is_orphan
    union
    select
        child.trace_id,
        child.span_id,
        child.parent_span_id,
        parent.depth + 1,
        parent.root,
        false
    from walk as parent
    inner join edges as child
        on child.trace_id = parent.trace_id and child.parent_span_id = parent.span_id
    where not child.is_orphan and child.span_id != parent.span_id and parent.depth < 1000
)
select * from walk
