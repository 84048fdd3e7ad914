"""The example of a GitHub Action: its shell steps run as written, with a slower second commit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = CHECKOUT / "examples" / "github-action"
WORKFLOW = cast("dict[Any, Any]", yaml.safe_load((EXAMPLE / "latency.yml").read_text()))
STEPS = cast("list[dict[str, Any]]", WORKFLOW["jobs"]["compare"]["steps"])
DEADLINE_S = 60


def free_ports() -> list[str]:
    """Return two that are free, below those that the kernel gives to whoever asks for any."""
    with socket.socket() as first, socket.socket() as second:
        for listener in (first, second):
            while True:
                try:
                    listener.bind(("127.0.0.1", random.randrange(20_000, 30_000)))  # noqa: S311
                    break
                except OSError:
                    continue
        return [str(listener.getsockname()[1]) for listener in (first, second)]


def git(*args: str, cwd: Path) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    done = subprocess.run(["git", *who, *args], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Runner:
    """What GitHub's runner does with the steps of the job: environment, folders, bash."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.temp, self.summary = (
            folder / "repository",
            folder / "temp",
            folder / "summary.md",
        )
        self.temp.mkdir()
        shutil.copytree(EXAMPLE, self.workspace, ignore=shutil.ignore_patterns("__pycache__"))
        git("init", "--quiet", cwd=self.workspace)
        git("add", ".", cwd=self.workspace)
        git("commit", "--quiet", "-m", "base", cwd=self.workspace)
        self.base = git("rev-parse", "HEAD", cwd=self.workspace)
        ports = free_ports()
        self.environment = os.environ | {
            **cast("dict[str, str]", WORKFLOW["env"]),
            "GRPC_PORT": ports[0],
            "HTTP_PORT": ports[1],
            "REQUESTS": "70",
            "ROUNDS": "1",
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_WORKSPACE": str(self.workspace),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def commit(self, old: str, new: str) -> None:
        """Make the pull request's change."""
        file = self.workspace / "service.py"
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))
        git("commit", "--quiet", "-a", "-m", "change", cwd=self.workspace)

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one step as the runner does: bash -e, with what GitHub puts in the place of expressions."""
        step = next(step for step in STEPS if step.get("name") == name)
        environment = {
            key: str(value)
            .replace("${{ env.GRPC_PORT }}", self.environment["GRPC_PORT"])
            .replace("${{ github.event.pull_request.base.sha }}", self.base)
            for key, value in step.get("env", {}).items()
        }
        assert not any("${{" in value for value in environment.values()), environment
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )

    def stop(self) -> None:
        """End what the steps left running, as the runner does at the end of the job."""
        about = self.temp / "traces" / "collector.json"
        if about.exists():
            os.kill(int(json.loads(about.read_text())["pid"]), signal.SIGTERM)
            deadline = time.monotonic() + DEADLINE_S
            while about.exists():
                assert time.monotonic() < deadline, "the collector did not stop"
                time.sleep(0.05)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    if not shutil.which("git") or not shutil.which("curl"):
        pytest.skip("needs git and curl, as a runner has")
    made = Runner(tmp_path)
    yield made
    made.stop()


def test_a_slower_pull_request_fails_and_says_which_stage(runner: Runner) -> None:
    runner.commit("MODEL_MS = 5", "MODEL_MS = 30")

    for name in ("Put the base beside the pull request", "Collect"):
        done = runner.run(name)
        assert done.returncode == 0, done.stderr
    measured = runner.run("Measure and compare")
    targets = runner.run("Hold both against the targets")

    assert measured.returncode == 1, measured.stderr
    summary = runner.summary.read_text()
    assert "FAILED mean\\>10%: mean went from " in summary
    assert "mostly in inference" in summary
    assert targets.returncode == 0, targets.stderr
    assert "ranker: p99\\<200ms" in summary


def test_the_workflow_may_only_read_and_runs_on_pull_requests() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert WORKFLOW[True] == "pull_request", "YAML reads the key `on` as true"
    assert "github.event" not in "".join(str(step.get("run", "")) for step in STEPS), (
        "no text of others in a shell"
    )
