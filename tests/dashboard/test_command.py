"""`tailscope dashboard`: which collector it shows, what it starts, and what it stops."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tailscope.conventions import DEFAULT_URL, ENV_DATA, ENV_URL
from tailscope_dashboard._child import ChildError, answers, collector_on, served_at
from tailscope_dashboard.command import free_port, main, source_of, streamlit_command
from tests.dashboard.processes import Ignoring, dashboard
from tests.dashboard.traffic import Load, post


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(ENV_URL, raising=False)
    monkeypatch.delenv(ENV_DATA, raising=False)
    monkeypatch.chdir(tmp_path)


def test_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_URL, "http://127.0.0.1:1")

    with source_of("http://127.0.0.1:2", None) as url:
        assert url == "http://127.0.0.1:2"


def test_environment_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_URL, "http://127.0.0.1:1")

    with source_of(None, None) as url:
        assert url == "http://127.0.0.1:1"


def test_nothing_given_shows_the_default_address() -> None:
    with source_of(None, None) as url:
        assert url == DEFAULT_URL


def test_missing_directory_is_named_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", "nowhere", "--port", "0"]) == 1

    said = capsys.readouterr().err
    assert "No such data directory: nowhere" in said
    assert "tailscope serve --data nowhere" in said


def test_taken_port_is_named_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert main(["--port", str(port)]) == 1

    assert f"Cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_free_port_is_one_that_can_be_had() -> None:
    assert free_port("127.0.0.1", 0) > 0


@pytest.mark.parametrize(
    "arguments", [["--port", "x"], ["--port", "70000"], ["--url", "u", "--data", "d"], ["--nope"]]
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)

    assert error.value.code == 2


def test_streamlit_sends_nothing_home_and_listens_where_it_is_told() -> None:
    command = streamlit_command("127.0.0.1", 8599)

    assert "--browser.gatherUsageStats=false" in command
    assert "--server.address=127.0.0.1" in command
    assert Path(command[4]).is_file()


def test_directory_that_nobody_serves_gets_a_collector_for_the_time_being(collector_folder: Path) -> None:
    with collector_on(collector_folder) as url:
        assert answers(url)
        assert served_at(collector_folder) == url

    assert not answers(url)
    assert served_at(collector_folder) is None


def test_directory_that_is_served_is_asked_and_left_running(collector_folder: Path) -> None:
    with collector_on(collector_folder) as owner:
        with collector_on(collector_folder) as guest:
            assert guest == owner

        assert answers(owner)


def test_collector_that_cannot_start_is_reported(collector_folder: Path) -> None:
    (collector_folder / "storage.json").write_text(json.dumps({"storage_version": 999}))

    with pytest.raises(ChildError, match="ended at once"), collector_on(collector_folder):
        pass


def test_address_is_said_when_it_answers_and_a_missing_collector_once() -> None:
    with Ignoring("--url", "http://127.0.0.1:9") as child:
        address = child.address()
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:  # noqa: S310  our own process
            assert answer.status == 200
        said = child.end(signal.SIGINT)

    assert said.count("No collector answers at http://127.0.0.1:9") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_dashboard_in_the_background_and_its_children(
    collector_folder: Path, number: signal.Signals
) -> None:
    with Ignoring("--data", str(collector_folder)) as child:
        address = child.address()
        collector = served_at(collector_folder)
        assert collector is not None

        child.end(number)

    assert not answers(collector)
    assert not answers(address)


def test_signal_while_the_page_starts_ends_quietly() -> None:
    with Ignoring("--url", "http://127.0.0.1:9") as child:
        child.line("No collector answers")  # Streamlit is being started now

        said = child.end(signal.SIGINT)

    assert said.strip().splitlines()[1:] == []


def test_dashboard_of_a_directory_stops_what_it_started(collector_folder: Path) -> None:
    with dashboard("--data", str(collector_folder)) as app:
        collector = served_at(collector_folder)
        assert collector is not None
        post(collector, Load(requests=3))
        with urllib.request.urlopen(app, timeout=10) as answer:  # noqa: S310  our own process
            assert answer.status == 200

    assert not answers(collector)
