-- Appends the mark that every batch up to $settled is settled.
insert into settle_marks values ($settled)
