-- The median of values that stand for w rows each; see quantile_w.
create macro p50w(x, w) as quantile_w(x, w, 0.5)
