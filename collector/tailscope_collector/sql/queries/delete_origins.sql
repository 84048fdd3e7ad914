-- Deletes the origins that no span names any more: those of sealed spans lie in their segments. Only at a start: a
-- running writer remembers the numbers it gave out.
delete from origin_rows
where origin_id not in (select origin_id from span_rows)
