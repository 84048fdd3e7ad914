-- One row is one span with its place in the tree of its trace; the macro tree_of says what the columns mean, and is
-- the one to use for a single trace. No order is promised.
create view span_tree as
select *
from tree_of(null)
