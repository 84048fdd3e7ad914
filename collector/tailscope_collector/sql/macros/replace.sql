-- DuckDB's replace(s, a, b), for a result of at most 262,144 letters at worst: see repeat.
create macro replace(s, a, b) as
    system.main.replace(
        s,
        a,
        case
            when length(b) > length(a) and length(s) // greatest(length(a), 1) * length(b) > 262144
                then error('replace() makes at most 262144 letters here.')
            else b
        end
    )
