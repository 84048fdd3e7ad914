"""The data-quality light."""

from __future__ import annotations

from typing import Any

import pytest

from tailscope_dashboard import _quality as quality
from tests.dashboard.reports import report, stage


def judged(**changes: Any) -> quality.Light:
    base = {
        "complete_share": 1.0,
        "orphans": 0,
        "dropped": 0,
        "skewed": 0,
        "clock_grain_ns": 1000,
        "sampled": False,
        "verdict": "ok",
    }
    return quality.light(report(stage("queue", 1, 2), quality=base | changes))


@pytest.mark.parametrize(
    ("changes", "colour"),
    [
        ({}, "green"),
        ({"verdict": "clocks disagree"}, "orange"),
        ({"dropped": 3}, "orange"),
        ({"complete_share": 0.5}, "red"),
        ({"complete_share": None}, "green"),
    ],
)
def test_light_follows_the_data(changes: dict[str, Any], colour: str) -> None:
    assert judged(**changes).colour == colour


def test_light_says_in_words_what_its_colour_says() -> None:
    words = {judged().word, judged(dropped=1).word, judged(complete_share=0.1).word}

    assert len(words) == 3


def test_clock_grain_is_given_in_its_own_unit() -> None:
    assert "Clock grain: 41 ns." in judged(clock_grain_ns=41).reasons
    assert "Clock grain: 1 \u00b5s." in judged(clock_grain_ns=1000).reasons


def test_sampled_requests_are_said_to_be_with_how_much_they_tell() -> None:
    reasons = judged(sampled=True, stored=1200, sampled_share=0.12, effective=345.6).reasons

    assert any("1,200 are stored" in reason and "345 unsampled ones" in reason for reason in reasons)


def test_reasons_begin_with_the_verdict() -> None:
    assert judged(verdict="clocks disagree").reasons[0] == "Clocks disagree."
