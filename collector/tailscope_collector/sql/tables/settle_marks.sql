-- One row per settling: every batch up to settled_seq is in request_rows and ledger_rows. The greatest one counts.
create table settle_marks (settled_seq bigint)
