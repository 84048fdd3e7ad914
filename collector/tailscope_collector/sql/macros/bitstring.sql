-- DuckDB's bitstring(b, n), for at most 65,536 bits: see repeat.
create macro bitstring(b, n) as
    system.main.bitstring(b, case when n > 65536 then error('bitstring() makes at most 65536 bits here.') else n end)
