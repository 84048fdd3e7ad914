-- DuckDB's list_resize(l, n) and list_resize(l, n, v), for at most 16,384 elements: see repeat.
create macro list_resize(l, n) as
    system.main.list_resize(l, case when n > 16384 then error('list_resize() makes a list of at most 16384 here.') else n end),
(l, n, v) as
    system.main.list_resize(
        l, case when n > 16384 then error('list_resize() makes a list of at most 16384 here.') else n end, v
    )
