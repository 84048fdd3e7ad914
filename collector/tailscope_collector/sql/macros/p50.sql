-- The median, interpolated between ranks.
create macro p50(x) as quantile_cont(x, 0.5)
