"""What an operator is given: documents, unit, alerts and dashboard name only what is there."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tailscope_collector import _metric_memory, _metric_reader
from tailscope_collector._exports import REASONS
from tailscope_collector._lifetime import STOP_S
from tailscope_collector.commands.serve import parser
from tests.collector.serving import call, post_json

if TYPE_CHECKING:
    from tailscope_collector import Collector

ROOT = Path(__file__).resolve().parents[2]
OPERATING = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
METRICS = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
BOARD = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]

NAME = re.compile(r"\b(?:tailscope_collector|process)_[a-z_]+\b")


def names_on(page: str) -> set[str]:
    return {re.split(r"[ {]", line)[0] for line in page.splitlines() if not line.startswith("#")}


def expressions() -> dict[str, str]:
    """Return every PromQL expression that is handed out, by where it stands."""
    found = {
        f"panel {panel['title']} {t['refId']}": t["expr"]
        for panel in BOARD["panels"]
        for t in panel["targets"]
    }
    found |= {f"alert {rule['alert']}": rule["expr"] for rule in RULES}
    found |= {f"docs {line[:40]}": line for line in OPERATING.splitlines() if NAME.search(line)}
    return found


def test_every_metric_that_a_panel_an_alert_or_the_guide_names_is_on_the_page(collector: Collector) -> None:
    there = names_on(call(f"{collector.url}/metrics").body.decode())

    unknown = {
        (where, name)
        for where, expression in expressions().items()
        for name in NAME.findall(expression)
        if name not in there and not name.endswith("_")
    }
    assert unknown == set()
    assert len(expressions()) > 40


@pytest.mark.parametrize(("where", "expression"), expressions().items())
def test_every_expression_is_closed(where: str, expression: str) -> None:
    for left, right in ("()", "{}", "[]"):
        assert expression.count(left) == expression.count(right), where


def test_panels_have_places_of_their_own_and_each_says_what_it_shows() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        assert panel["description"].endswith(".")
        assert panel["targets"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_every_alert_is_explained() -> None:
    for rule in RULES:
        assert re.search(rf"^\| {rule['alert']} \|", OPERATING, re.MULTILINE), rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"]


def test_the_unit_starts_a_collector_and_leaves_it_time_to_stop() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    unit.read_string((ROOT / "deploy" / "tailscope.service").read_text(encoding="utf-8"))
    service = unit["Service"]
    program, command, *flags = shlex.split(service["ExecStart"])

    assert (Path(program).name, command) == ("tailscope", "serve")
    parsed = parser().parse_args(flags)
    assert parsed.data == f"/var/lib/{service['StateDirectory']}"
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert float(service["TimeoutStopSec"]) > STOP_S + parsed.drain_s
    assert float(service["WatchdogSec"]) > 0


def test_the_guide_names_only_flags_that_there_are_and_every_reason() -> None:
    shown = parser().format_help()
    for flag in set(re.findall(r"`(--[a-z-]+)", OPERATING + METRICS)):
        assert flag in shown, flag
    for reason in REASONS.values():
        assert f"`{reason}`" in OPERATING, reason
    source = (ROOT / "collector" / "tailscope_collector" / "_health.py").read_text(encoding="utf-8")
    codes = re.findall(r'Reason\("([a-z_]+)"', source)
    assert len(set(codes)) == 4
    for code in [*codes, "starting", "stopping"]:
        assert f"`{code}`" in OPERATING, code


def test_files_that_the_guides_point_to_are_there() -> None:
    for name, text in (("operating.md", OPERATING), ("metrics.md", METRICS)):
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (ROOT / "docs" / link).resolve().exists(), (name, link)


def test_the_numbers_of_the_guides_are_those_of_the_code() -> None:
    for number in (
        _metric_reader.MAX_POINTS,
        _metric_reader.MAX_ATTRIBUTES,
        _metric_memory.POINTS,
        _metric_reader.MAX_REQUEST_ATTRIBUTES,
    ):
        assert str(number) in METRICS
    assert f"within {STOP_S:g} s" in OPERATING


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", METRICS, re.DOTALL))
def test_the_queries_of_the_guide_run(collector: Collector, query: str) -> None:
    answer = post_json(f"{collector.url}/api/sql", {"query": query}, Accept="application/json")

    assert answer.status == 200, answer.body
