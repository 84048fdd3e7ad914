-- How many rows of weight 1 would tell as much as these (Kish's effective size): where it is far below the number of
-- rows, a few heavy ones decide.
create macro effective_w(w) as coalesce(round(sum(w) ** 2 / nullif(sum(w ** 2), 0)), 0)::bigint
