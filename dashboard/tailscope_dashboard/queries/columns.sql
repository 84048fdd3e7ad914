-- One row per column of the views that can be asked, in their order. Parameters: views.
select
    table_name as "view",
    column_name as "column",
    data_type as type
from duckdb_columns()
where not internal and table_name in $views
order by table_name, column_index
