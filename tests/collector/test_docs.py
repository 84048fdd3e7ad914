"""What the documents say is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from scripts import views_page
from tailscope_collector import Collector, Settings
from tailscope_collector._promoted import PROMOTED
from tailscope_collector._query._queries import DEFAULT_ROWS
from tailscope_collector._sql import INTERNAL, MACROS, MACROS_OF_VIEWS, VIEWS, VIEWS_OF_MACROS
from tailscope_collector.commands.serve import parser
from tests.collector.building import SpanSpec, body
from tests.collector.serving import ask, ask_rows, post_protobuf
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

SQL = (CHECKOUT / "docs" / "sql.md").read_text()
COLLECTOR = (CHECKOUT / "docs" / "collector.md").read_text()
SEALED = "tailscope-data/segments"


@pytest.fixture(scope="module")
def page() -> str:
    return views_page.page()


def test_the_page_of_views_is_made_of_what_there_is(page: str) -> None:
    assert views_page.PAGE.read_text() == page, "stale: python -m scripts.views_page"


def test_every_view_macro_and_promoted_column_is_on_the_page(page: str) -> None:
    for view in {*VIEWS, *VIEWS_OF_MACROS} - INTERNAL:
        assert f"\n## {view}\n" in page
    for macro in {*MACROS, *MACROS_OF_VIEWS} - INTERNAL:
        assert f"\n### {macro}\n" in page
    for column, (_, keys) in PROMOTED.items():
        assert re.search(rf"\| {column} \| \w+ \| [^|]*{re.escape(keys[0])}", page), column
    assert (
        page.count("```sql")
        == page.count("```text")
        == len(views_page.WORDS["views"]) + len(views_page.WORDS["macros"])
    )


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Give a collector that runs in the current directory and has sealed all but its last trace."""
    monkeypatch.chdir(tmp_path)
    with Collector("tailscope-data") as collector:
        for trace in range(1, 5):
            post_protobuf(collector.url, body(SpanSpec(trace, kind=2), SpanSpec(trace, 2, 1, "inference")))
        done = collector._sealer.seal(quiet_seq=1 << 40, most_spans=1 << 40)  # type: ignore[attr-defined]
        assert done is not None
        post_protobuf(collector.url, body(SpanSpec(9, kind=2)))
        yield collector


def test_sealed_segments_are_read_beside_a_collector(sealed: Collector) -> None:
    (query,) = re.findall(r"```sql\n(.*?)```", SQL, re.DOTALL)
    with duckdb.connect() as elsewhere:
        assert [row[:2] for row in elsewhere.sql(query).fetchall()] == [("svc", 4)]
    outside = subprocess.run(
        [sys.executable, "-c", code_of("Polars")], capture_output=True, text=True, timeout=60, check=True
    )
    assert "inference" in outside.stdout
    assert ask_rows(sealed.url, "select count(*) from spans") == [[9]]


@pytest.mark.parametrize("view", ["spans", "requests", "stages", "metrics"])
def test_sealed_files_have_the_columns_of_the_views(sealed: Collector, view: str) -> None:
    name = {"stages": "ledger"}.get(view, view)
    path = next(Path(SEALED).glob(f"*/{name}.parquet"), None)
    if path is None:
        assert view == "metrics", "there were none"
        return
    ours = set(ask(sealed.url, f"select * from {view} limit 0")["columns"])  # noqa: S608 - names of this module

    with duckdb.connect() as elsewhere:
        theirs = set(elsewhere.sql(f"from read_parquet('{path}')").columns)

    assert ours - theirs <= {"duration_ms", "self_ms"}, "milliseconds are made of nanoseconds"


def test_the_example_in_python_runs(sealed: Collector) -> None:
    code = code_of("From Python").replace("http://127.0.0.1:4318", sealed.url)

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    *batches, truncated = ran.stdout.splitlines()
    assert (sum(map(int, batches)), truncated) == (9, "False")


def code_of(section: str) -> str:
    """Return the first Python block after a word."""
    return SQL.partition(section)[2].partition("```python\n")[2].partition("```")[0]


def test_every_setting_is_documented_with_its_default() -> None:
    for setting in fields(Settings):
        flag = "--" + setting.name.replace("_", "-")

        assert f"| `{flag}` | {setting.default} | {setting.metadata['help']} |" in COLLECTOR
    assert f"at most {DEFAULT_ROWS} rows" in COLLECTOR


def test_help_names_every_flag_of_the_document() -> None:
    shown = parser().format_help()

    for flag in set(re.findall(r"`(--[a-z-]+)", COLLECTOR)) - {"--url"}:
        assert flag in shown
