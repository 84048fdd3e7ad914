-- The 95th percentile of values that stand for w rows each; see quantile_w.
create macro p95w(x, w) as quantile_w(x, w, 0.95)
