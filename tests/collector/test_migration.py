"""Stores of earlier releases, of later ones, and files that have grown beyond what they hold."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import duckdb
import pytest

from tailscope_collector import open_data
from tailscope_collector._directory import STORAGE_VERSION
from tailscope_collector.errors import StoreVersionError
from tests.collector.building import SpanSpec, body
from tests.collector.test_sealing import Sealable, rich

if TYPE_CHECKING:
    from pathlib import Path

# What version 1 had and later ones do not, or have otherwise; the rest of its tables is the same.
TO_VERSION_1 = """
alter table span_rows drop column sample_weight;
drop table trace_rows; create table trace_rows (trace_id varchar, first_seq bigint, span_count bigint);
drop table ledger_rows;
create table ledger_rows (
    trace_id varchar, service varchar, stage varchar, category varchar, operation varchar,
    self_ns bigint, self_ms double
);
drop table metric_rows;
create table metric_rows (
    time timestamp, time_unix_nano bigint, service varchar, instance varchar, host varchar, metric varchar,
    unit varchar, value double, attributes map(varchar, varchar)
);
drop table segment_rows; drop table sealed_traces; drop table reopened_rows; drop table finding_rows;
drop table kept_rows;
create view spans as select trace_id from span_rows;
create macro p50(x) as quantile_cont(x, 0.5);
create macro slowest(n) as table select * from request_rows limit n;
"""


def made_old(path: Path) -> None:
    with duckdb.connect(str(path / "active.duckdb")) as connection:
        views = connection.execute("select view_name from duckdb_views() where not internal").fetchall()
        for (view,) in views:
            connection.execute(f'drop view "{view}"')
        macros = connection.execute(
            "select distinct function_name, function_type from duckdb_functions() "
            "where not internal and function_type in ('macro', 'table_macro')"
        ).fetchall()
        for name, kind in macros:
            connection.execute(f'drop macro {"table " if kind == "table_macro" else ""}"{name}"')
        for statement in TO_VERSION_1.split(";"):
            connection.execute(statement)
        connection.execute("insert into trace_rows values ('stale', 1, 1)")
        connection.execute("insert into settle_marks values (1)")
    (path / "storage.json").write_text(json.dumps({"storage_version": 1}))


def test_a_store_of_version_1_is_brought_up_to_date_with_all_its_spans(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Sealable(tmp_path) as bench:
        bench.ingest(*(rich(trace) for trace in range(1, 6)))
        before = bench.everything()
    made_old(tmp_path)

    for _ in range(2):
        with Sealable(tmp_path) as bench:
            assert bench.everything() == before
            assert json.loads((tmp_path / "storage.json").read_text()) == {"storage_version": STORAGE_VERSION}
    assert caplog.text.count(f"{tmp_path} is of an earlier release") == 1
    with Sealable(tmp_path) as bench:
        bench.seal()
        assert bench.everything() == before


def test_a_kill_between_migration_and_its_mark_does_no_harm(tmp_path: Path) -> None:
    with Sealable(tmp_path) as bench:
        bench.ingest(rich(1))
        before = bench.everything()
    (tmp_path / "storage.json").write_text(json.dumps({"storage_version": 1}))

    with Sealable(tmp_path) as bench:
        assert bench.everything() == before


@pytest.mark.parametrize("version", [STORAGE_VERSION + 1, 99, 0, -1, "2", None, True, 1.5])
def test_other_versions_are_refused_and_the_path_is_named(tmp_path: Path, version: object) -> None:
    (tmp_path / "storage.json").write_text(json.dumps({"storage_version": version}))

    with pytest.raises(StoreVersionError, match=str(tmp_path)):
        open_data(tmp_path, create=True)

    assert not (tmp_path / "active.duckdb").exists()


def test_a_file_that_holds_little_is_made_small_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope_collector._compaction.LEAST_BYTES", 1)
    with Sealable(tmp_path) as bench:
        noise = [{"noise": secrets.token_hex(4000)} for _ in range(1000)]
        bench.ingest(*(body(SpanSpec(n, attributes=value)) for n, value in enumerate(noise, start=1)))
        bench.store.checkpoint()
        bench.seal()
        bench.ingest(rich(9999))
        before = bench.everything()
    size = (tmp_path / "active.duckdb").stat().st_size

    with Sealable(tmp_path) as bench:
        assert bench.everything() == before
        assert bench.store.next_origin_id() > 0
        assert bench.committer.batch_seq == 2
    assert (tmp_path / "active.duckdb").stat().st_size < size / 2
    assert not (tmp_path / "compact").exists()


def test_a_file_that_cannot_be_made_small_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Sealable(tmp_path) as bench:
        bench.ingest(rich(1))
        before = bench.everything()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("tailscope_collector._store.is_worth_it", lambda _: True)
    monkeypatch.setattr("tailscope_collector._store.compact", fail)
    with Sealable(tmp_path) as bench:
        assert bench.everything() == before
    assert "no space left on device" in caplog.text


def test_views_of_an_earlier_build_are_made_anew(tmp_path: Path) -> None:
    with Sealable(tmp_path) as bench:
        bench.ingest(rich(1))
        bench.seal()
        before = bench.everything()
    with duckdb.connect(str(tmp_path / "active.duckdb")) as connection:
        connection.execute("drop view requests")
        connection.execute("create view requests as select 1 as wrong")
        connection.execute("comment on table segment_rows is 'views of another time'")

    with Sealable(tmp_path) as bench:
        assert bench.everything() == before
