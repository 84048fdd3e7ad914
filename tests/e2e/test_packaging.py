"""The distribution: what the wheel holds and what installing it brings along."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = {"tailscope", "tailscope_collector", "tailscope_analyzer", "tailscope_dashboard"}
HEAVY = {
    "duckdb",
    "polars",
    "pyarrow",
    "streamlit",
    "numpy",
    "scipy",
    "rich",
    "fastapi",
    "onnxruntime",
    "ptars",
}
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]


CORE_SOURCES = {"tailscope/_core.pyx", "tailscope/_core.h"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the checkout."""
    return built_wheel(tmp_path_factory.mktemp("dist"))


def built_wheel(folder: Path, **environment: str) -> Path:
    """Build the wheel of the checkout into a folder."""
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(CHECKOUT),
    ]
    done = subprocess.run(
        build, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def brings(extras: set[str]) -> set[str]:
    """Return the names of all that `pip install tailscope[extras]` installs, by the metadata of each."""
    found: set[str] = set()
    todo = [("tailscope", frozenset(extras))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        name, wanted = todo.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            continue  # named only under a condition that is not ours, such as another platform
        found.add(name)
        for line in lines:
            requirement = Requirement(line)
            if applies(requirement, wanted):
                todo.append((normal(requirement.name), frozenset(requirement.extras)))
    return found


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Say whether a requirement holds on this machine under one of the extras."""
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""})


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_light_package_brings_nothing_heavy() -> None:
    assert not brings(set()) & HEAVY


def test_each_extra_brings_what_its_commands_need() -> None:
    assert {"polars", "pyarrow", "numpy", "rich"} <= brings({"analyzer"})
    assert {"duckdb", "ptars", "uvicorn", "polars"} <= brings({"collector"})
    assert {"streamlit", "polars"} <= brings({"dashboard"})
    assert brings({"all"}) >= HEAVY


def test_the_analyzer_brings_no_store_and_no_screen() -> None:
    assert not brings({"analyzer"}) & {"duckdb", "streamlit", "uvicorn"}


def test_the_dashboard_brings_no_store() -> None:
    assert "duckdb" not in brings({"dashboard"})


def test_the_wheel_holds_the_four_packages_and_nothing_beside_them(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    top = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert top == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert not [name for name in names if "test" in name.rpartition("/")[2]]


def test_the_wheel_holds_every_file_that_the_packages_have(wheel: Path) -> None:
    """A query, a page or a script that is found in the checkout alone breaks every installation."""
    held = set(zipfile.ZipFile(wheel).namelist())

    there: set[str] = set()
    for parent in ("instrumentation", "collector", "analyzer", "dashboard"):
        for package in PACKAGES:
            root = CHECKOUT / parent
            files = (path for path in (root / package).rglob("*") if path.is_file())
            there |= {str(path.relative_to(root)) for path in files if "__pycache__" not in path.parts}
    assert there - held <= CORE_SOURCES


def test_the_wheel_holds_the_compiled_core_where_it_was_built(wheel: Path) -> None:
    held = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("tailscope/_core.")]

    there = [path.name for path in (CHECKOUT / "instrumentation/tailscope").glob("_core.*.so")]
    assert [name.partition("/")[2] for name in held] == there
    assert wheel.name.endswith("none-any.whl") == (not there)


def test_without_a_compiler_the_wheel_is_pure(tmp_path: Path) -> None:
    wheel = built_wheel(tmp_path, CC="no-such-compiler", TAILSCOPE_BUILD_CORE="1")

    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "_core." in name]


def test_the_wheel_declares_every_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]

    declared = archive.read(name).decode()

    for command in PROJECT["entry-points"]["tailscope.commands"]:
        assert re.search(rf"^{command} = tailscope", declared, re.MULTILINE), command


@pytest.mark.parametrize("command", PROJECT["entry-points"]["tailscope.commands"].items())
def test_each_declared_command_can_be_imported(command: tuple[str, str]) -> None:
    module, _, function = command[1].partition(":")

    done = subprocess.run(
        [sys.executable, "-c", f"import {module} as m; assert callable(m.{function})"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_supported_python_is_the_same_everywhere() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert "(3, 11)" in (CHECKOUT / "scripts" / "venv").read_text()
    assert "Python 3.11" in (CHECKOUT / "README.md").read_text()
