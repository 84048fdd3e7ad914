"""The processes of the demo: started, found dead, stopped with what they started."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailscope.demo import _children
from tailscope.demo._children import ChildError, Children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SLEEPER = "import time; time.sleep(60)"
GRANDCHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
print(child.pid, flush=True)
child.wait()
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('deaf', flush=True)
time.sleep(60)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_running(pid: int) -> bool:
    """Say whether a process is alive; a zombie that nobody has collected yet is not."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc").exists()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, f"waited 10 s: {what}"


def test_a_dead_child_is_an_error_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start(
            "broken", python("import sys; print('no model here', flush=True); sys.exit(3)")
        )

        with pytest.raises(ChildError, match=r"(?s)broken ended with exit code 3 before.*no model here"):
            _children.wait_until(child, lambda: False, what="it answered")

    assert (tmp_path / "broken.log").read_text() == "no model here\n"


def test_a_silent_child_is_an_error_after_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_children, "READY_TIMEOUT_S", 0.2)

    with Children(tmp_path) as children:
        child = children.start("silent", python(SLEEPER))
        with pytest.raises(ChildError, match=r"silent took longer than .*: waited for it answered"):
            _children.wait_until(child, lambda: False, what="it answered")


def test_all_processes_are_stopped_when_the_block_is_left_by_an_error(tmp_path: Path) -> None:
    pids: list[int] = []

    def start_and_fail() -> None:
        with Children(tmp_path) as children:
            pids.append(children.start("one", python(SLEEPER)).process.pid)
            pids.append(children.nested().start("two", python(SLEEPER)).process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start_and_fail()

    assert [is_running(pid) for pid in pids] == [False, False]


def test_what_a_child_has_started_is_stopped_with_it(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("parent", python(GRANDCHILD), talks=True)
        assert child.process.stdout is not None
        grandchild = int(child.process.stdout.readline())
        assert is_running(grandchild)

    wait_for(lambda: not is_running(grandchild), "the grandchild ended")


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_children, "STOP_TIMEOUT_S", 0.3)

    with Children(tmp_path) as children:
        child = children.start("deaf", python(DEAF), talks=True)
        assert child.process.stdout is not None
        assert child.process.stdout.readline() == "deaf\n"

    assert child.process.returncode == -signal.SIGKILL


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, as in a fresh process, whatever earlier tests have made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_kills_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    children = Children(tmp_path)
    sleeper = children.start("sleeper", python(SLEEPER))
    deaf = children.start("deaf", python(DEAF), talks=True)
    assert deaf.process.stdout is not None
    assert deaf.process.stdout.readline() == "deaf\n"
    impatient = threading.Timer(0.2, _thread.interrupt_main)
    began = time.monotonic()

    impatient.start()
    children.stop()

    assert time.monotonic() - began < _children.STOP_TIMEOUT_S / 2
    assert deaf.process.returncode == -signal.SIGKILL
    assert sleeper.process.returncode == -signal.SIGTERM


def test_a_nested_set_can_be_stopped_earlier(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        kept = children.start("kept", python(SLEEPER))
        inner = children.nested()
        stopped = inner.start("stopped", python(SLEEPER))

        inner.stop()

        assert kept.process.poll() is None
        assert stopped.process.poll() == -signal.SIGTERM


def test_a_taken_port_is_not_offered() -> None:
    with _children.bound_socket() as taken:
        taken.listen()
        port = taken.getsockname()[1]

        assert _children.free_port(port) == 0

    assert _children.free_port(port) == port


def test_no_answer_is_no_error() -> None:
    with _children.bound_socket() as nobody:
        assert not _children.answers(f"http://127.0.0.1:{nobody.getsockname()[1]}/healthz")
