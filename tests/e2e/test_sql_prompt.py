"""`tailscope sql` on a terminal: a person asks one query after the other."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from prompt_toolkit.document import Document

from tailscope_analyzer import connect
from tailscope_analyzer.commands._prompt_editor import SqlCompleter, is_complete
from tailscope_analyzer.commands._vocabulary import MACROS, VIEWS, vocabulary_of
from tailscope_collector import Collector, _sql
from tests.collector.building import MS, SpanSpec, body
from tests.collector.serving import post_protobuf
from tests.e2e.terminal import DEADLINE_S, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY = "tailscope>"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("data")) as made:
        for trace in range(1, 51):
            post_protobuf(
                made.url, body(SpanSpec(trace, kind=2, name="POST /predict", duration_ns=trace * MS))
            )
        yield made


@pytest.fixture
def terminal(collector: Collector, tmp_path: Path) -> Iterator[Terminal]:
    env = {"TAILSCOPE_HISTORY": str(tmp_path / "history"), "PAGER": ""}
    with Terminal("sql", "--url", collector.url, env=env) as made:
        made.wait_for(READY)
        yield made


def said(terminal: Terminal, typed: str) -> str:
    """Type a line and return what came of it: all until the answer to the next one."""
    terminal.type(f"{typed}\r.limit 4321\r")
    return terminal.wait_for("At most 4,321 rows.")


def test_a_query_of_several_lines_is_answered_with_its_time(terminal: Terminal) -> None:
    terminal.type("select count(*) as requests\r")
    terminal.wait_for("...>")
    answer = said(terminal, "from requests;")
    assert "requests\n" in answer.replace(" ", "")
    assert "50" in answer.split()
    assert "1 row in 0." in answer


def test_an_error_points_at_its_place_and_the_prompt_stays(terminal: Terminal) -> None:
    answer = said(terminal, "select no_such_column from spans;")
    assert 'Referenced column "no_such_column" not found' in answer
    assert any(line.strip() == "^" * len("no_such_column") for line in answer.splitlines())
    assert "42" in said(terminal, "select 40 + 2 as answer;").split()


def test_ctrl_c_stops_the_query_and_not_the_prompt(terminal: Terminal) -> None:
    terminal.type("select count(*) from range(1000000000000);\r")
    deadline = time.monotonic() + DEADLINE_S
    while not _watches():
        assert time.monotonic() < deadline
        time.sleep(0.02)

    terminal.type("\x03")

    terminal.wait_for("Stopped.")
    terminal.wait_for(READY)
    while _watches():
        assert time.monotonic() < deadline, "the collector still works on it"
        time.sleep(0.02)
    terminal.type("select 'still' || ' here' as it;\r")
    terminal.wait_for("still here")


def _watches() -> int:
    return sum(thread.name == "tailscope-watch" for thread in threading.enumerate())


def test_ctrl_c_clears_a_line_and_ctrl_d_is_the_end(terminal: Terminal) -> None:
    terminal.type("select nonsense")
    terminal.wait_for("nonsense")
    terminal.type("\x03")
    terminal.wait_for(READY)

    assert terminal.ended(insisting="\x04") == 0


def test_dot_commands_tell_what_there_is(terminal: Terminal) -> None:
    listed = said(terminal, ".tables")
    assert all(name in listed for name in (*VIEWS, *MACROS))
    columns = said(terminal, ".schema stages")
    assert "self_ms" in columns
    assert "DOUBLE" in columns
    assert "There is no view 'nowhere'. There are: requests" in said(terminal, "\\d nowhere")
    assert "There is no .schmea" in said(terminal, ".schmea")
    assert "Ctrl-C stops a query" in said(terminal, ".help")
    terminal.type(".quit\r")
    assert terminal.ended() == 0


def test_rows_are_limited_and_the_format_can_be_changed(terminal: Terminal) -> None:
    terminal.type(".limit 2\r")
    terminal.wait_for("At most 2 rows.")
    terminal.type(".format csv\r")
    terminal.type("select i, i * 2 as twice from range(10) t(i) order by i;\r")

    answer = terminal.wait_for("2 rows in")
    assert answer.splitlines()[-4:-1] == ["i,twice", "0,0", "1,2"]
    terminal.wait_for("there are more, see .limit")


@pytest.mark.parametrize("kind", ["table", "csv", "json", "jsonl"])
def test_no_value_drives_the_terminal(terminal: Terminal, kind: str) -> None:
    """A name in a span is whatever somebody sent; C1 controls are commands to a terminal as escapes are."""
    terminal.type(f".format {kind}\r")
    answer = said(terminal, "select chr(155) || '2J' as x;")

    assert "\ufffd2J" in answer
    assert "\x9b" not in answer


@pytest.mark.parametrize("kind", ["table", "csv", "json", "jsonl"])
def test_neither_does_one_of_a_single_query(collector: Collector, kind: str) -> None:
    query = "select chr(155) || '2J' as x, 'end' as y"
    with Terminal("sql", "--url", collector.url, "--format", kind, query, env={}) as terminal:
        seen = terminal.wait_for("end")

    assert "\ufffd2J" in seen
    assert "\x9b" not in seen


def test_tab_completes_columns_of_the_collector(terminal: Terminal) -> None:
    terminal.type("select p99(durat\t")
    terminal.wait_for("duration_ms")


def test_what_was_asked_is_there_the_next_time(collector: Collector, tmp_path: Path) -> None:
    env = {"TAILSCOPE_HISTORY": str(tmp_path / "history"), "PAGER": ""}
    for asked in ("select 'once' as x;", "\x1b[A"):  # arrow up
        with Terminal("sql", "--url", collector.url, env=env) as terminal:
            terminal.wait_for(READY)
            terminal.type(f"{asked}\r")
            terminal.wait_for("1 row in")
            terminal.wait_for(READY)
            terminal.type("\x04")
            assert terminal.ended() == 0
    assert (tmp_path / "history").stat().st_mode & 0o077 == 0


def test_a_long_answer_goes_through_the_pager(collector: Collector, tmp_path: Path) -> None:
    paged = tmp_path / "paged"
    env = {"TAILSCOPE_HISTORY": str(tmp_path / "history"), "PAGER": f"tee {paged}"}
    with Terminal("sql", "--url", collector.url, env=env, lines=10) as terminal:
        terminal.wait_for(READY)
        terminal.type("select * from requests order by duration_ms;\r")
        terminal.wait_for("50 rows in")

    lines = paged.read_text().splitlines()
    assert len(lines) == 52
    assert "tpot_ms" in lines[0]


def test_a_directory_without_a_collector_has_the_prompt_too(tmp_path: Path) -> None:
    with Collector(tmp_path / "data"):
        pass
    env = {"TAILSCOPE_HISTORY": str(tmp_path / "history"), "PAGER": ""}
    with Terminal("sql", "--data", str(tmp_path / "data"), env=env) as terminal:
        terminal.wait_for(READY)
        terminal.type("select count(*) from range(1000000000000);\r")
        time.sleep(0.5)  # nothing outside of the process tells that it runs
        terminal.type("\x03")
        terminal.wait_for("Stopped.")
        terminal.wait_for(READY)
        terminal.type("select count(*) as n from spans;\r")
        terminal.wait_for("1 row in")


def test_the_vocabulary_is_what_the_collector_has(collector: Collector) -> None:
    known = vocabulary_of(connect(collector.url))

    assert set(VIEWS) == set(_sql.VIEWS + _sql.VIEWS_OF_MACROS) - _sql.INTERNAL
    assert {name.partition("(")[0] for name in MACROS} == set(
        _sql.MACROS + _sql.MACROS_OF_VIEWS
    ) - _sql.INTERNAL
    assert set(known.columns) == set(VIEWS)
    assert ("self_ms", "DOUBLE") in known.columns["stages"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("select * from requ", ["requests"]),
        ("select requests.mod", ["model"]),
        ("select tree_", ["tree_of("]),
        (".sch", [".schema"]),
        (".schema sp", ["span_tree", "spans"]),
        ("select x.zzz", []),
    ],
)
def test_tab_offers(collector: Collector, typed: str, offered: list[str]) -> None:
    completer = SqlCompleter(vocabulary_of(connect(collector.url)))

    completions = completer.get_completions(Document(typed), None)  # type: ignore[arg-type]  # not looked at

    assert sorted(completion.text for completion in completions) == offered


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        (".tables", True),
        ("\\d spans", True),
        ("select 1", False),
        ("select 1;", True),
        ("select 1; -- done", True),
        ("select 1 -- not; yet;", False),
        ("select 1\n;", True),
    ],
)
def test_enter_ends_the_input(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
