"""docs/gate.md: its code runs, and what it says of options, presets and targets is so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_analyzer._pytest_gate import _plugin
from tailscope_analyzer._slo import PRESETS, Slo, parse_config, parse_target
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (CHECKOUT / "docs" / "gate.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_test_it_shows_runs_and_asks_for_the_fixture() -> None:
    """The fixture has a stand-in here: what the real one does is tested with a clock that stands still."""
    test_code, _ = blocks("python")
    seen: list[object] = []
    names: dict[str, Any] = {"predict": seen.append}
    exec(test_code.replace("from service import predict\n", ""), names)  # noqa: S102 - our own page

    test: Callable[[Any], None] = names["test_predict_is_not_slower"]
    test(Stand)

    assert len(seen) == 420


class Stand:
    """Stands for the fixture: takes the options of the page."""

    def __init__(self, *, warm_up: int) -> None:
        assert warm_up == 20

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_the_python_of_targets_runs_and_its_comment_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    _, code = blocks("python")
    names: dict[str, Any] = {}

    exec(code, names)  # noqa: S102 - our own page

    found = names["found"]
    assert isinstance(found, Slo)
    assert f'"{found.status}", {found.budget_used:.1f}' in code
    printed = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^    (Missed: .*?)^\| preset", PAGE, re.MULTILINE | re.DOTALL)[0].splitlines()
    assert len(shown) > 10
    assert [line.strip() for line in shown if line.strip() not in printed] == []


def test_the_file_of_targets_is_one() -> None:
    (text,) = blocks("toml")

    (objective,) = parse_config(text, origin="docs/gate.md")

    assert [target.text for target in objective.targets] == ["p99<200ms", "errors<0.1%"]


def test_the_presets_are_those_of_the_code() -> None:
    told = dict(re.findall(r"^\| `([a-z-]+)` \| `(p\d+<\d+ms)` \|$", PAGE, re.MULTILINE))

    assert told == PRESETS


def test_every_target_and_option_it_names_is_known() -> None:
    options: set[str] = set()
    parser = pytest.Parser(_ispytest=True)
    _plugin.pytest_addoption(parser)
    for option in parser.getgroup("tailscope").options:
        options.update(option.names())

    assert set(re.findall(r"--tailscope-[a-z-]+", PAGE)) == options
    assert all(f"`{rule}`" in PAGE for rule in _plugin.RULES)
    for text in re.findall(r"--target '([^']+)'", PAGE):
        assert parse_target(text)
