-- DuckDB's damerau_levenshtein(a, b), for texts whose lengths multiply to at most 1,048,576: it fills a table of both, and two of
-- 50,000 letters took 23 GB. See repeat.
create macro damerau_levenshtein(a, b) as
    system.main.damerau_levenshtein(
        a,
        case
            when length(a) * length(b) > 1048576
                then error('damerau_levenshtein() compares texts of lengths that multiply to at most 1048576 here.')
            else b
        end
    )
