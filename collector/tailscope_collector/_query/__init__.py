"""Questions: what SQL may do, its bounds, and answers that stream."""
