-- DuckDB's lpad(s, n, p), for at most 65,536 letters: see repeat.
create macro lpad(s, n, p) as
    system.main.lpad(s, case when n > 65536 then error('lpad() makes at most 65536 letters here.') else n end, p)
