-- The 95th percentile, interpolated between ranks.
create macro p95(x) as quantile_cont(x, 0.95)
