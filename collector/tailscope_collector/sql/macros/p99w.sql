-- The 99th percentile of values that stand for w rows each; see quantile_w.
create macro p99w(x, w) as quantile_w(x, w, 0.99)
