-- DuckDB's function generate_series, which makes a list, for at most 16,384 elements: see repeat. The table function of the
-- same name makes as many rows as are asked for.
create macro generate_series(a bigint) as
    system.main.generate_series(
        case
            when a > 16384
                then error(
                    'generate_series() makes a list of at most 16384 here; use it as a table: from generate_series(...).'
                )
            else a
        end
    ),
(a bigint, b bigint) as
    system.main.generate_series(
        a,
        case
            when b - a > 16384
                then error(
                    'generate_series() makes a list of at most 16384 here; use it as a table: from generate_series(...).'
                )
            else b
        end
    ),
(a bigint, b bigint, c bigint) as
    system.main.generate_series(
        a,
        case
            when (b - a) / c > 16384
                then error(
                    'generate_series() makes a list of at most 16384 here; use it as a table: from generate_series(...).'
                )
            else b
        end,
        c
    ),
(a timestamp, b timestamp, c interval) as
    system.main.generate_series(
        a,
        case
            when (epoch(b) - epoch(a)) / epoch(c) > 16384
                then error(
                    'generate_series() makes a list of at most 16384 here; use it as a table: from generate_series(...).'
                )
            else b
        end,
        c
    ),
(a timestamptz, b timestamptz, c interval) as
    system.main.generate_series(
        a,
        case
            when (epoch(b) - epoch(a)) / epoch(c) > 16384
                then error(
                    'generate_series() makes a list of at most 16384 here; use it as a table: from generate_series(...).'
                )
            else b
        end,
        c
    )
