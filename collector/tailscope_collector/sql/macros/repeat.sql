-- DuckDB's repeat(s, n), for at most 65,536 letters or elements: a function is run for 2,048 rows at a time and cannot be
-- interrupted in between, so that repeat(x, 1000000) takes 2 GB before anybody sees it.
create macro repeat(s, n) as
    case
        when length(s) * n > 65536
            then error('repeat() makes at most 65536 letters or elements here.')
        else system.main.repeat(s, n)
    end
