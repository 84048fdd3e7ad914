-- DuckDB's array_resize(l, n) and array_resize(l, n, v), for at most 16,384 elements: see repeat.
create macro array_resize(l, n) as
    system.main.array_resize(l, case when n > 16384 then error('array_resize() makes a list of at most 16384 here.') else n end),
(l, n, v) as
    system.main.array_resize(
        l, case when n > 16384 then error('array_resize() makes a list of at most 16384 here.') else n end, v
    )
