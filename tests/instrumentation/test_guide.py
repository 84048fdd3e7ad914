"""docs/instrumentation.md: its code runs, and its table of settings is the one in the code."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import tailscope
from tailscope._settings import settings_table

if TYPE_CHECKING:
    import pytest

    from tests.instrumentation.receiver import Receiver

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "instrumentation.md"
UPDATE = bool(os.environ.get("TAILSCOPE_UPDATE_DOCS"))
TABLE = re.compile(r"(<!-- settings:[^>]*-->\n)(.*?)(<!-- /settings -->)", re.DOTALL)


def blocks() -> list[str]:
    """Return the Python blocks of the guide."""
    return re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_code_of_the_guide_runs_as_it_stands(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILSCOPE_ENDPOINT", receiver.endpoint)
    namespace: dict[str, object] = {}

    for block in blocks():
        exec(compile(block, str(GUIDE), "exec"), namespace)  # noqa: S102 - the guide is ours

    spans = receiver.spans()
    assert {span.resource["service.name"] for span in spans} == {"ranker"}
    names = {span.name for span in spans}
    assert names >= {"predict", "chat", "stream", "inference.decode", "GET user", "queue", "batch"}
    assert tailscope.stats().errors == {}


def test_the_first_example_has_five_lines_and_runs_first() -> None:
    first = blocks()[0]

    assert len([line for line in first.splitlines() if line.strip()]) <= 7
    assert first.startswith("import tailscope\n")


def test_the_table_of_settings_is_up_to_date() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    match = TABLE.search(text)
    assert match is not None
    if UPDATE:
        GUIDE.write_text(
            text[: match.start(2)] + settings_table() + "\n" + text[match.end(2) :], encoding="utf-8"
        )
        return
    assert match.group(2).strip() == settings_table(), (
        "run it with TAILSCOPE_UPDATE_DOCS=1 to write the table"
    )


def test_every_public_name_is_explained() -> None:
    text = GUIDE.read_text(encoding="utf-8")

    assert [name for name in tailscope.__all__ if f"tailscope.{name}" not in text] == []
