"""The set-up scripts: what they say where something is missing, tried on machines made of a PATH."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

VENV = CHECKOUT / "scripts" / "venv"
CHROMIUM = CHECKOUT / "scripts" / "chromium"
TOOLS = ("sh", "id", "uname", "dirname", "mktemp", "rm", "cat")


def machine(tmp_path: Path, **programs: str) -> dict[str, str]:
    """Return an environment whose PATH holds a few tools and the given shell scripts."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found:
            (folder / tool).symlink_to(found)
    for name, script in programs.items():
        program = folder / name.replace("_", "-").replace("python3-", "python3.")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return {"PATH": str(folder), "HOME": str(tmp_path)}


def run(script: Path, *args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(script), *args], capture_output=True, text=True, check=False, env=env)


def test_without_python_the_message_says_which_is_needed_and_how_to_get_it(tmp_path: Path) -> None:
    done = run(VENV, str(tmp_path / "venv"), env=machine(tmp_path))

    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


def test_an_old_python_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    env = machine(tmp_path, python3="exit 1", python3_12='echo "newer $*" >&2; exit 0')

    done = run(VENV, str(tmp_path / "venv"), env=env)

    assert "newer" in done.stderr
    assert "needs Python" not in done.stderr


def test_a_python_without_venv_is_answered_with_the_line_that_installs_it(tmp_path: Path) -> None:
    script = f"""case "$*" in *ensurepip*) exit 1 ;; esac; exec {sys.executable} "$@" """
    env = machine(tmp_path, python3=script)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"

    done = run(VENV, str(tmp_path / "venv"), env=env)

    assert done.returncode == 1
    assert f"apt-get install python{version}-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_unknown_kind_of_installation_is_wrong_usage(tmp_path: Path) -> None:
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").write_text("#!/bin/sh\nexit 0\n")
    (venv / "python").chmod(0o755)

    done = run(VENV, str(tmp_path / "venv"), "everything", env=machine(tmp_path))

    assert done.returncode == 2
    assert "usage: scripts/venv" in done.stderr


def test_a_named_browser_is_taken(tmp_path: Path) -> None:
    env = machine(tmp_path, my_browser="exit 0", chromium="exit 0")

    done = run(CHROMIUM, "python3", env=env | {"TAILSCOPE_CHROMIUM": f"{env['PATH']}/my-browser"})

    assert done.stdout == f"{env['PATH']}/my-browser\n"


def test_the_systems_browser_is_found(tmp_path: Path) -> None:
    env = machine(tmp_path, google_chrome="exit 0")

    done = run(CHROMIUM, "python3", env=env)

    assert done.stdout == f"{env['PATH']}/google-chrome\n"


def test_without_a_browser_playwrights_own_is_installed_and_nothing_is_printed(tmp_path: Path) -> None:
    env = machine(tmp_path, python3='echo "asked: $*" >&2')

    done = run(CHROMIUM, "python3", env=env)

    assert done.returncode == 0
    assert done.stdout == ""
    assert "asked: -m playwright install chromium" in done.stderr


def test_when_no_browser_can_be_had_the_message_says_what_to_do(tmp_path: Path) -> None:
    done = run(CHROMIUM, "python3", env=machine(tmp_path, python3="exit 1"))

    assert done.returncode == 1
    assert "sudo apt-get install chromium" in done.stderr
    assert "TAILSCOPE_CHROMIUM=" in done.stderr
