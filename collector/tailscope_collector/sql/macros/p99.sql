-- The 99th percentile, interpolated between ranks.
create macro p99(x) as quantile_cont(x, 0.99)
