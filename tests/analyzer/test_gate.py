"""The rules of a gate: their spelling, and what they fail on."""

from __future__ import annotations

from functools import cache

import pytest

from tailscope_analyzer import Comparison, InputError, compare
from tailscope_analyzer._comparison_text import comparison_markdown, comparison_text
from tailscope_analyzer._gate import Rule, Verdict, judge, parse_rule
from tests.analyzer.populations import mixed, traces_of


@cache
def slower(factor: float, *, n: int = 1_000) -> Comparison:
    """Compare requests with others whose inference takes `factor` times as long."""
    before, after = mixed(n, seed=1), mixed(n, seed=2)
    after["api", "inference", "self"] = after["api", "inference", "self"] * factor
    return compare(traces_of(before), traces_of(after))


def decided(comparison: Comparison, text: str) -> Verdict:
    (verdict,) = judge(comparison, [parse_rule(text)])
    return verdict


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("p99>5%", Rule("p99>5%", "p99", 0.05, is_share=True)),
        (" p50 > 10 ms ", Rule("p50 > 10 ms", "p50", 10.0, is_share=False)),
        ("mean>1.5s", Rule("mean>1.5s", "mean", 1500.0, is_share=False)),
        ("stage:queue>20ms", Rule("stage:queue>20ms", "stage:queue", 20.0, is_share=False)),
        ("service:a b>5%", Rule("service:a b>5%", "service:a b", 0.05, is_share=True)),
    ],
)
def test_a_rule_is_read(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text", ["", "p99", "p99>5", "p98>5%", "p99<5%", "stage:>5%", "p99:x>5%", "latency>5%", "p99>-5%"]
)
def test_what_is_no_rule_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InputError, match=r"Not a rule: .*p99>5%"):
        parse_rule(text)


@pytest.mark.parametrize("rule", ["p50>5%", "mean>5%", "stage:inference>5%", "service:api>1ms"])
def test_a_regression_beyond_the_limit_fails(rule: str) -> None:
    assert decided(slower(1.5), rule).failed


@pytest.mark.parametrize("rule", ["p50>90%", "mean>1s", "stage:inference>1s", "service:api>1s"])
def test_a_regression_within_the_limit_passes(rule: str) -> None:
    verdict = decided(slower(1.5), rule)

    assert not verdict.failed
    assert verdict.reason.endswith("within the limit")


@pytest.mark.parametrize("rule", ["p99>0%", "p50>0%", "mean>0ms", "stage:inference>0ms", "service:api>0%"])
def test_what_can_be_chance_passes(rule: str) -> None:
    assert not decided(slower(1.0), rule).failed


def test_a_latency_that_too_few_requests_carry_fails_and_says_so() -> None:
    verdict = decided(slower(1.0, n=60), "p99>5%")

    assert verdict.failed
    assert "cannot be judged from 60 and 60 requests" in verdict.reason


def test_a_stage_that_nobody_has_fails_and_is_named() -> None:
    verdict = decided(slower(1.0), "stage:nosuch>1ms")

    assert verdict.failed, "a misspelt rule must not be green"
    assert verdict.reason == "stage nosuch cannot be judged: it is on neither side"


def test_the_text_begins_with_the_answer_and_the_rules() -> None:
    comparison = slower(1.5)
    text = comparison_text(comparison, verdicts=[decided(comparison, "p50>5%")], width=100)

    assert text.startswith("Slower: api takes ")
    assert "\nFAILED p50>5%: p50 went from " in text
    assert "api inference" in text
    assert max(map(len, text.splitlines())) <= 100


def test_markdown_escapes_what_spans_said() -> None:
    before, after = mixed(400, seed=1), mixed(400, seed=2)
    name = "evil|<b>*x*"
    parts = [
        {(name, stage, category): v for (_, stage, category), v in one.items()} for one in (before, after)
    ]
    parts[1][name, "inference", "self"] = parts[1][name, "inference", "self"] * 2
    page = comparison_markdown(compare(traces_of(parts[0]), traces_of(parts[1])))

    assert "<b>" not in page.replace("\\<b\\>", "")
    assert r"evil\|\<b\>\*x\* inference" in page
