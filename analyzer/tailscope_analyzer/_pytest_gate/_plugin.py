"""What pytest loads: options, the marker, the fixture and the lines of the summary.

Imports nothing but pytest: a test run that has no gate pays for nothing, and one in an environment without
the analyzer's packages is not disturbed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from tailscope_analyzer._pytest_gate._gate import TailGate

FOLDER: Final = "tailscope-baselines"
RULES: Final = ("mean>15%", "p95>25%")
"""Of 20 pairs of runs of the same code none failed by these on a quiet machine, and 1 where five neighbours
shared each core (benchmarks/gate.py)."""
PROPERTY: Final = "tailscope"
NEEDS: Final = "The fixture tail_gate needs {name}. Install it with: pip install 'tailscope[analyzer]'"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the settings of pytest's configuration file."""
    group = parser.getgroup("tailscope", "latency gates (tailscope)")
    group.addoption(
        "--tailscope-update-baseline",
        action="store_true",
        help="write what the fixture tail_gate measures as the new baseline, and compare nothing",
    )
    group.addoption(
        "--tailscope-baselines", metavar="DIR", help=f"where baselines lie (default: ./{FOLDER} of the root)"
    )
    group.addoption(
        "--tailscope-fail-on",
        action="append",
        metavar="RULE",
        help=f"what fails, as in tailscope compare; several times (default: {', '.join(RULES)})",
    )
    group.addoption(
        "--tailscope-any-machine",
        action="store_true",
        help="compare with a baseline of another machine as if it were of this one",
    )
    parser.addini("tailscope_baselines", f"where baselines lie (default: {FOLDER})", default=FOLDER)
    parser.addini("tailscope_fail_on", "rules of the fixture tail_gate", type="linelist", default=[*RULES])


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, which `--strict-markers` asks for."""
    config.addinivalue_line(
        "markers", "tail_gate(fail_on=..., warm_up=..., ...): defaults of the fixture tail_gate in this test"
    )


@pytest.fixture
def tail_gate(request: pytest.FixtureRequest) -> TailGate:
    """Give what measures the requests of a block, and fails where they are slower than the baseline."""
    try:
        from tailscope_analyzer._pytest_gate._gate import TailGate
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tailscope"):
            raise
        pytest.fail(NEEDS.format(name=error.name), pytrace=False)
    config, node = request.config, request.node
    marker = node.get_closest_marker("tail_gate")
    if marker is not None and marker.args:
        pytest.fail("The marker tail_gate takes keywords alone, such as fail_on=['p99>5%'].", pytrace=False)
    properties: list[tuple[str, object]] = node.user_properties
    folder = config.getoption("tailscope_baselines") or config.getini("tailscope_baselines")
    return TailGate(
        folder=Path(config.rootpath, str(folder)),
        test=str(node.nodeid),
        rules=tuple(config.getoption("tailscope_fail_on") or config.getini("tailscope_fail_on")),
        defaults=dict(marker.kwargs) if marker is not None else {},
        update=bool(config.getoption("tailscope_update_baseline")),
        any_machine=bool(config.getoption("tailscope_any_machine")),
        say=lambda line: properties.append((PROPERTY, line)),
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write a line for each gate; user properties come from workers of pytest-xdist as well."""
    lines: list[str] = [
        str(line)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, line in getattr(report, "user_properties", ())
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("tailscope", sep="-")
        for line in sorted(lines):
            terminalreporter.line(line)
