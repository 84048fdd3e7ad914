-- DuckDB's regexp_replace(s, p, r) and regexp_replace(s, p, r, options), for a result of at most 262,144 letters at worst:
-- see repeat.
create macro regexp_replace(s, p, r) as
    system.main.regexp_replace(
        s,
        p,
        case
            when (length(s) + 1) * length(r) > 262144 then error('regexp_replace() makes at most 262144 letters here.')
            else r
        end
    ),
(s, p, r, o) as
    system.main.regexp_replace(
        s,
        p,
        case
            when (length(s) + 1) * length(r) > 262144 then error('regexp_replace() makes at most 262144 letters here.')
            else r
        end,
        o
    )
