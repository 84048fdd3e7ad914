-- The q-quantile of values x that stand for w rows each (w at least 1, or 0): that of the values repeated so often,
-- interpolated between ranks; quantile_cont(x, q) where every w is 1. No aggregate of DuckDB takes weights: the values
-- are sorted into a list, and the place of the rank is found by halving, each time with the sum of one half of what is
-- left. 1 M rows: 0.4 s, 0.6 s for three quantiles of the same x and w.
create macro quantile_w(x, w, q) as case
    when min(w) = 1 and max(w) = 1 then quantile_cont(x, q)
    else list_transform(
        [{
            'x': list(x order by x) filter (where w > 0 and x is not null),
            'w': list(w::double order by x) filter (where w > 0 and x is not null),
            'rows': count(x) filter (where w > 0),
            'rank': q * (sum(w::double) filter (where x is not null) - 1)
        }],
        lambda s: list_transform(
            [list_reduce(
                list_resize(
                    [{'low': 1::bigint, 'high': s.rows, 'below': 0::double}],
                    2 + ceil(log2(s.rows + 1))::bigint,
                    {'low': 1::bigint, 'high': s.rows, 'below': 0::double}
                ),
                lambda a, b: case
                    when a.low = a.high then a
                    when a.below + list_sum(s.w[a.low:(a.low + a.high) // 2]) > s.rank
                        then {'low': a.low, 'high': (a.low + a.high) // 2, 'below': a.below}
                    else {
                        'low': (a.low + a.high) // 2 + 1,
                        'high': a.high,
                        'below': a.below + list_sum(s.w[a.low:(a.low + a.high) // 2])
                    }
                end
            )],
            lambda f: s.x[f.low]
                + coalesce((s.x[f.low + 1] - s.x[f.low]) * greatest(0, s.rank - (f.below + s.w[f.low] - 1)), 0)
        )[1]
    )[1]
end
