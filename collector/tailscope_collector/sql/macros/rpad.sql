-- DuckDB's rpad(s, n, p), for at most 65,536 letters: see repeat.
create macro rpad(s, n, p) as
    case
        when n > 65536 then error('rpad() makes at most 65536 letters here.')
        else system.main.rpad(s, n, p)
    end
