"""The `tailscope` command as a user types it: a real process, its output and its exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailscope._cli import COMMANDS

TAILSCOPE = str(Path(sys.executable).with_name("tailscope"))


def tailscope(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TAILSCOPE, *args], capture_output=True, text=True, check=False, timeout=60)


def test_help_lists_every_command_on_stdout() -> None:
    done = tailscope("--help")

    assert done.returncode == 0
    assert done.stderr == ""
    for command, (_, sentence) in COMMANDS.items():
        assert f"  {command:<11}{sentence}" in done.stdout.splitlines()


def test_no_command_is_wrong_usage() -> None:
    done = tailscope()

    assert done.returncode == 2
    assert done.stdout == ""
    assert "usage: tailscope COMMAND" in done.stderr


def test_an_unknown_command_is_answered_with_the_nearest_one() -> None:
    done = tailscope("reprot")

    assert done.returncode == 2
    assert done.stderr == "No such command: reprot. Did you mean 'report'?\n"


def test_version_is_the_installed_one() -> None:
    done = tailscope("--version")

    assert done.returncode == 0
    assert done.stdout.startswith("tailscope 0.")


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailscope", "--version"], capture_output=True, text=True, check=False
    )

    assert done.stdout == tailscope("--version").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_under_its_own_name(command: str) -> None:
    done = tailscope(command, "--help")

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: tailscope {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_option_is_wrong_usage_without_a_traceback(command: str) -> None:
    done = tailscope(command, "--no-such-option")

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "usage: tailscope" in done.stderr


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        (["report"], "polars", "analyzer"),
        (["doctor"], "polars", "analyzer"),
        (["sql", "select 1"], "pyarrow", "analyzer"),
        (["trace", "00"], "polars", "analyzer"),
        (["serve"], "duckdb", "collector"),
        (["import", "x.json"], "duckdb", "collector"),
        (["dashboard"], "streamlit", "dashboard"),
        (["demo"], "onnxruntime", "demo"),
    ],
)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(
    command: list[str], missing: str, extra: str
) -> None:
    """A finder that denies the package stands in for an environment without it; CI tries a real one."""
    code = f"""
import sys
class Deny:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Deny())
from tailscope._cli import main
sys.exit(main({command!r}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert f"pip install 'tailscope[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
