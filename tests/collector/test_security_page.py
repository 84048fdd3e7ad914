"""docs/security.md says what is so."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer.commands.sql import main as sql_command
from tailscope_collector._counters import COUNTERS
from tailscope_collector._guards import _access, _connections, _tls
from tailscope_collector._guards._security import guards_for
from tailscope_collector.commands._security_flags import FILES, security_of
from tailscope_collector.commands.serve import parser
from tests.collector.certificates import write_certificates
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (CHECKOUT / "docs" / "security.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def served(block: str) -> list[str]:
    """Return the words of the `tailscope serve` in a block."""
    (line,) = re.findall(r"tailscope serve (.*)", block.replace("\\\n", " "))
    return shlex.split(line)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_commands_give_a_collector_that_starts(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = write_certificates(tmp_path)
    (tmp_path / "cert").rename("server.pem")
    (tmp_path / "key").rename("server.key")
    assert made.ca
    for tokens in re.findall(r"^\(.*\)$", "\n".join(BLOCKS), re.MULTILINE):
        subprocess.run(["bash", "-c", tokens], check=True, timeout=20)
    args = parser().parse_args(served(block))

    guards = guards_for(args.host, security_of(args))

    assert guards.access.asks("ingest")
    assert guards.access.asks("query")
    assert (guards.tls is not None) == ("--tls-cert" in block)


def test_every_flag_and_variable_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    shown = parser().format_help()
    with pytest.raises(SystemExit):
        sql_command(["--help"])
    asked = capsys.readouterr().out
    for flag in set(re.findall(r"(--[a-z][a-z-]+)", PAGE)):
        assert flag in shown or flag in asked or flag == "--data"
    for flag, (variable, _) in FILES.items():
        assert flag in PAGE
        assert variable in shown
    for variable in set(re.findall(r"TAILSCOPE_[A-Z_]+", PAGE)):
        assert variable in asked + shown
    for counter in set(re.findall(r"`(\w+_total)`", PAGE)):
        assert counter in COUNTERS


def test_the_numbers_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE))

    assert rows["head of a request"].startswith(
        f"{_connections.HEAD_BYTES // 1024} KiB, {_connections.HEADERS} headers, 10 s"
    )
    assert f"{_connections.Bounds().body_s:g} s" in rows["body"]
    assert rows["rest of a body after its answer"] == f"{_connections.DRAIN_S:g} s"
    assert rows["a client that takes nothing of its answer"] == f"{_connections.STALL_S:g} s"
    assert rows["a connection between requests"] == f"{_connections.IDLE_S:g} s"
    assert rows["requests sent ahead on one connection"] == str(_connections.PIPELINED)
    assert f"at least {_access.MIN_CHARS} visible characters" in PAGE
    assert f"read again within {_tls.LOOK_S:g} s" in " ".join(PAGE.split())
