"""`tailscope demo` from end to end: real processes, real load, each planted fault where it was planted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

DEMO = [sys.executable, "-m", "tailscope", "demo"]
FAULTS = ("slow auth dependency", "batch window", "GC pauses", "slow instance", "big payloads")
DEADLINE_S = 120


class Running:
    """A demo in the background, and what it has said on stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._said: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self._said.append(line)
                self._news.notify()
        with self._news:
            self._said.append("(end)")
            self._news.notify()

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match on stderr."""
        with self._news:
            self._news.wait_for(lambda: self._has_said(pattern) or "(end)" in self._said, DEADLINE_S)
            found = self._has_said(pattern)
            assert found is not None, f"waited {DEADLINE_S} s for {pattern!r}: {''.join(self._said)}"
            return found

    def _has_said(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, "".join(self._said))

    def stop(self, how: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(how)
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        """Make sure that it has ended."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def running(*args: str) -> Generator[Running]:
    """Run a demo in the background."""
    process = subprocess.Popen(
        [*DEMO, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    demo = Running(process)
    try:
        yield demo
    finally:
        demo.close()


def collector_pid(data: Path) -> int:
    return int(json.loads((data / "collector.json").read_text())["pid"])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Return a demo that has run to its end, and its data directory."""
    data = tmp_path_factory.mktemp("demo") / "data"
    command = [*DEMO, "--requests", "400", "--no-dashboard", "--data", str(data)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S), data


def test_it_exits_by_itself_with_success(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = finished

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_shows_where_it_was_planted(
    fault: str, finished: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    done, _ = finished

    table = done.stdout[done.stdout.index("Planted on purpose") :]

    assert fault in table
    not_seen = re.search(r"Not seen in this run: (.*)\.", table)
    assert not_seen is None or fault not in not_seen[1], table


def test_the_report_stands_above_the_table(
    finished: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, _ = finished

    report = done.stdout[: done.stdout.index("Planted on purpose")]

    for stage in ("queue", "inference", "preprocess"):
        assert stage in report


def test_every_request_was_answered(finished: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = finished

    assert "400 requests answered, 0 failed." in done.stdout


def test_the_data_is_kept_where_it_was_asked_for(
    finished: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, data = finished
    assert done.returncode == 0, done.stderr
    query = "select count(*) as n from requests where service = 'ranker' and operation not like '%healthz%'"

    asked = subprocess.run(
        [sys.executable, "-m", "tailscope", "sql", "--data", str(data), "--format", "csv", query],
        capture_output=True,
        text=True,
        check=False,
    )

    assert asked.returncode == 0, asked.stderr
    assert int(asked.stdout.split()[-1]) >= 400


def test_the_dashboard_stays_open_until_it_is_told_to_stop(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running("--requests", "320", "--data", str(data)) as demo:
        address = demo.wait_for(r"Dashboard: (http://127\.0\.0\.1:\d+)")[1]
        pid = collector_pid(data)

        with urllib.request.urlopen(address, timeout=10) as page:  # noqa: S310 - an http address of the demo
            assert page.status == 200
        assert is_running(pid)
        code = demo.stop(signal.SIGTERM)

    assert code == 0
    assert not is_running(pid)


def test_ctrl_c_while_requests_are_sent_stops_everything(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running("--requests", "2000", "--data", str(data)) as demo:
        demo.wait_for(r"Sending 2,000 requests")
        pid = collector_pid(data)

        code = demo.stop(signal.SIGINT)

    assert code == 130
    assert not is_running(pid)


def test_too_few_requests_are_wrong_usage() -> None:
    done = subprocess.run([*DEMO, "--requests", "10"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "--requests 10: the report needs 320 at least" in done.stderr


def test_a_directory_that_cannot_be_used_is_an_error_with_the_end_of_the_log(tmp_path: Path) -> None:
    taken = tmp_path / "data"
    taken.write_text("a file where a directory should be")

    done = subprocess.run(
        [*DEMO, "--no-dashboard", "--data", str(taken)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "collector ended with exit code" in done.stderr
    logs = re.search(r"Its logs: (\S+)", done.stderr)
    assert logs is not None
    assert (Path(logs[1]) / "collector.log").exists()
