-- One row is one service that sent spans; $most rows at most, by name.
select distinct service
from spans
order by service
limit $most
