-- DuckDB's format(said, ...), with at most eight values and widths of at most four digits, which stand in the text: see
-- repeat.
create macro format(said) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end
    ),
(said, a) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a
    ),
(said, a, b) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b
    ),
(said, a, b, c) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b, c
    ),
(said, a, b, c, d) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b, c, d
    ),
(said, a, b, c, d, e) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b, c, d, e
    ),
(said, a, b, c, d, e, f) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b, c, d, e, f
    ),
(said, a, b, c, d, e, f, g) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b, c, d, e, f, g
    ),
(said, a, b, c, d, e, f, g, h) as
    system.main.format(
        case
            when regexp_matches(said, '[{][^}]*:[^}]*([0-9]{5}|[{])')
                then error('format() takes widths of at most 4 digits here.')
            else said
        end, a, b, c, d, e, f, g, h
    )
