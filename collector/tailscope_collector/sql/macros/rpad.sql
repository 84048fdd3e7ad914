-- DuckDB's rpad(s, n, p), for at most 65,536 letters: see repeat.
create macro rpad(s, n, p) as
    system.main.rpad(s, case when n > 65536 then error('rpad() makes at most 65536 letters here.') else n end, p)
