"""compose.yaml and Dockerfile: that they parse, and that what they promise is what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tailscope_collector._guards._security import guards_for
from tailscope_collector.commands._security_flags import security_of
from tailscope_collector.commands.serve import parser
from tailscope_collector.errors import AccessError
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

COMPOSE = CHECKOUT / "compose.yaml"
DOCKERFILE = (CHECKOUT / "Dockerfile").read_text()
SERVICES = ("collector", "dashboard", "accounts", "ranker", "load")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE.read_text())["services"])


def has_compose() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not has_compose(), reason="docker compose is not installed; the file is parsed all the same"
)
def test_compose_accepts_the_file() -> None:
    done = subprocess.run(
        ["docker", "compose", "--file", str(COMPOSE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_all_services_run_from_one_image_with_a_chosen_base(services: dict[str, Any]) -> None:
    assert tuple(services) == SERVICES
    for service in services.values():
        assert service["image"] == "tailscope:local"
        assert service["build"]["args"]["BASE_IMAGE"] == "${BASE_IMAGE:-python:3.12-slim}"
    assert DOCKERFILE.count("FROM ${BASE_IMAGE}") == 2
    assert "ARG BASE_IMAGE=python:3.12-slim" in DOCKERFILE


def test_the_image_runs_as_an_ordinary_user() -> None:
    last_user = re.findall(r"^USER (\w+)", DOCKERFILE, re.MULTILINE)[-1]

    assert last_user == "tailscope"


def copied_paths() -> set[str]:
    """Return the paths of the checkout that the Dockerfile copies into its first stage."""
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    return {path for line in lines for path in line.split()}


def test_every_copied_path_reaches_the_build() -> None:
    allowed = {line[1:] for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line[:1] == "!"}

    assert copied_paths() == allowed


def test_what_is_copied_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for path in copied_paths():
        whole = CHECKOUT / path
        copy = shutil.copytree if whole.is_dir() else shutil.copy
        copy(whole, source / path)

    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(source),
    ]
    done = subprocess.run(build, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_ports_are_published_on_loopback_alone(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_inside_the_network_every_server_listens_on_all_addresses(services: dict[str, Any]) -> None:
    for name in ("collector", "dashboard", "accounts", "ranker"):
        command = services[name]["command"]
        assert command[command.index("--host") + 1] == "0.0.0.0"  # noqa: S104 - the point of the test


def test_the_collector_of_the_network_starts_open_and_answers_to_its_name(
    services: dict[str, Any], tmp_path: Path
) -> None:
    words = services["collector"]["command"]
    args = parser().parse_args([str(tmp_path) if word == "/data" else word for word in words[1:]])
    guards = guards_for(args.host, security_of(args))

    assert guards.hosts.allows("collector:4318")
    assert guards.hosts.allows("127.0.0.1:4318")
    assert not guards.hosts.allows("attacker.example")


def test_the_image_alone_says_what_it_needs(services: dict[str, Any]) -> None:
    words = yaml.safe_load(re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)[-1])
    args = parser().parse_args(words[1:])

    assert services
    with pytest.raises(AccessError, match="--ingest-token-file and --query-token-file"):
        guards_for(args.host, security_of(args))


def test_each_server_has_a_health_check_and_is_waited_for(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if name != "load":
            assert service["healthcheck"]["test"][0] == "CMD"
        for needed, condition in service.get("depends_on", {}).items():
            assert needed in services
            assert condition == {"condition": "service_healthy"}


def test_each_address_of_another_service_names_one_and_its_port(services: dict[str, Any]) -> None:
    ports = {"collector": {"4317", "4318"}, "accounts": {"8100"}, "ranker": {"8000"}}

    for service in services.values():
        for host, port in re.findall(r"http://(\w+):(\d+)", " ".join(service.get("command", []))):
            assert port in ports[host]


def test_the_collector_keeps_its_data_on_a_volume(services: dict[str, Any]) -> None:
    command = services["collector"]["command"]

    assert command[command.index("--data") + 1] == "/data"
    assert services["collector"]["volumes"] == ["data:/data"]


@pytest.mark.parametrize(
    ("module", "service"), [("accounts", "accounts"), ("service", "ranker"), ("load", "load")]
)
def test_each_service_of_the_demo_knows_its_options(
    module: str, service: str, services: dict[str, Any], python_help: dict[str, str]
) -> None:
    assert services[service]["entrypoint"] == ["python", "-m", f"tailscope.demo.{module}"]

    options = [word for word in services[service]["command"] if word.startswith("--")]

    assert options
    assert all(re.search(rf"{option}\b", python_help[module]) for option in options)


@pytest.fixture(scope="module")
def python_help() -> dict[str, str]:
    """Return what `python -m tailscope.demo.NAME --help` prints."""

    def ask(module: str) -> str:
        command = [sys.executable, "-m", f"tailscope.demo.{module}", "--help"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    return {module: ask(module) for module in ("accounts", "service", "load")}
