-- How many rows there were, counted by what each stands for. 9e18: a sender may claim any weight up to 2^62, and the
-- sum of some must not end a query.
create macro count_w(w) as least(coalesce(round(sum(w)), 0), 9e18)::bigint
