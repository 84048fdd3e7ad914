-- DuckDB's repeat(s, n), for at most 65,536 letters or elements: a function is run for 2,048 rows at a time and cannot be
-- interrupted in between, so that repeat(x, 1000000) takes 2 GB before anybody sees it. The bound stands in the argument:
-- of a call with constants DuckDB works out both branches of a case before it looks which one counts.
create macro repeat(s, n) as
    system.main.repeat(
        s,
        case
            when length(s) * n > 65536 then error('repeat() makes at most 65536 letters or elements here.')
            else n
        end
    )
