-- DuckDB's function range, which makes a list, for at most 16,384 elements: see repeat. The table function of the
-- same name makes as many rows as are asked for.
create macro range(a bigint) as
    system.main.range(
        case
            when a > 16384
                then error(
                    'range() makes a list of at most 16384 here; use it as a table: from range(...).'
                )
            else a
        end
    ),
(a bigint, b bigint) as
    system.main.range(
        a,
        case
            when b - a > 16384
                then error(
                    'range() makes a list of at most 16384 here; use it as a table: from range(...).'
                )
            else b
        end
    ),
(a bigint, b bigint, c bigint) as
    system.main.range(
        a,
        case
            when (b - a) / c > 16384
                then error(
                    'range() makes a list of at most 16384 here; use it as a table: from range(...).'
                )
            else b
        end,
        c
    ),
(a timestamp, b timestamp, c interval) as
    system.main.range(
        a,
        case
            when (epoch(b) - epoch(a)) / epoch(c) > 16384
                then error(
                    'range() makes a list of at most 16384 here; use it as a table: from range(...).'
                )
            else b
        end,
        c
    ),
(a timestamptz, b timestamptz, c interval) as
    system.main.range(
        a,
        case
            when (epoch(b) - epoch(a)) / epoch(c) > 16384
                then error(
                    'range() makes a list of at most 16384 here; use it as a table: from range(...).'
                )
            else b
        end,
        c
    )
