-- DuckDB's lpad(s, n, p), for at most 65,536 letters: see repeat.
create macro lpad(s, n, p) as
    case
        when n > 65536 then error('lpad() makes at most 65536 letters here.')
        else system.main.lpad(s, n, p)
    end
