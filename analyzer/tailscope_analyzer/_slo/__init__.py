"""Targets for a service: whether they were met, how fast their budget goes, and what misses them.

Owns targets and their presets, the accounting of the budget, burn rates and the split of the requests that
missed. Reads no clock: "now" is the last request of the data.
"""

from __future__ import annotations

from tailscope_analyzer._slo._config import Objective, parse_config
from tailscope_analyzer._slo._result import Slo
from tailscope_analyzer._slo._slo import slo
from tailscope_analyzer._slo._target import PRESETS, Target, parse_period, parse_target

__all__ = ["PRESETS", "Objective", "Slo", "Target", "parse_config", "parse_period", "parse_target", "slo"]
