"""What the documents say is what happens."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tailscope_collector import Settings
from tailscope_collector._promoted import PROMOTED
from tailscope_collector._queries import DEFAULT_ROWS
from tailscope_collector._sql import MACROS, VIEWS
from tailscope_collector.commands.serve import parser
from tests.collector.building import Bench, SpanSpec, body
from tests.collector.test_views import CONTRACT
from tests.shared import CHECKOUT

SQL = (CHECKOUT / "docs" / "sql.md").read_text()
COLLECTOR = (CHECKOUT / "docs" / "collector.md").read_text()
EXAMPLES = re.findall(r"```sql\n(.*?)```", SQL, re.DOTALL)


@pytest.mark.parametrize("query", EXAMPLES)
def test_every_example_runs(bench: Bench, query: str) -> None:
    bench.ingest(
        body(SpanSpec(kind=2), SpanSpec(span=2, parent=1, name="inference", attributes={"user": "u1"}))
    )

    bench.source.sql(query)


def test_every_view_has_its_columns_and_an_example() -> None:
    sections = {part.partition("\n")[0]: part for part in SQL.split("\n## ")[1:]}

    for view in VIEWS:
        assert "```sql" in sections[view], view
        for column in CONTRACT[view].split():
            assert re.search(rf"\b{column}\b", sections[view]), f"{view}.{column}"
    for column, (_, keys) in PROMOTED.items():
        assert column in sections["spans"]
        assert keys[0] in sections["spans"]
    for macro in MACROS:
        assert f"{macro}(" in sections["Macros"]


def test_every_setting_is_documented_with_its_default() -> None:
    for setting in fields(Settings):
        flag = "--" + setting.name.replace("_", "-")

        assert f"| `{flag}` | {setting.default} | {setting.metadata['help']} |" in COLLECTOR
    assert f"at most {DEFAULT_ROWS} rows" in COLLECTOR


def test_help_names_every_flag_of_the_document() -> None:
    shown = parser().format_help()

    for flag in set(re.findall(r"`(--[a-z-]+)", COLLECTOR)) - {"--url"}:
        assert flag in shown
