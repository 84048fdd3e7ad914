"""The README: what it tells a newcomer to type exists, and its code runs as written."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tailscope._cli import COMMANDS
from tests.shared import CHECKOUT

README = (CHECKOUT / "README.md").read_text()
DOCUMENTS = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_set_up_is_exactly_two_commands() -> None:
    outside_fences = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)

    typed = re.findall(r"^    (\w.*?)(?:\s+#.*)?$", outside_fences, re.MULTILINE)

    assert typed == ["make demo", "make test"]


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (CHECKOUT / "Makefile").read_text(), re.MULTILINE))

    named = set(re.findall(r"\bmake ([a-z]+)\b", README))

    assert named
    assert named <= targets


def test_every_command_that_is_shown_exists_with_its_options() -> None:
    lines = [line for block in code_blocks(README, "sh") for line in block.splitlines()]

    assert len(lines) >= 5
    for line in lines:
        program, command, *rest = line.split()
        assert program == "tailscope"
        assert command in COMMANDS
        told = subprocess.run(
            [sys.executable, "-m", "tailscope", command, "--help"], capture_output=True, text=True, check=True
        ).stdout
        for option in (word for word in rest if word.startswith("--")):
            assert re.search(rf"{option}\b", told), f"{command} {option}"


def test_the_five_lines_run_as_written() -> None:
    (code,) = code_blocks(README, "python")
    program = f"def model(text): return text.upper()\n{code}\nprint(predict('slow?'))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "SLOW?\n"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_every_link_to_a_file_leads_somewhere(document: object) -> None:
    path = CHECKOUT / str(document)
    targets = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text())

    missing = [target for target in targets if not (path.parent / target).exists()]

    assert missing == []
