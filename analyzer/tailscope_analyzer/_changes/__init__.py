"""What moved during a window, and when, found without being asked.

Owns the series (who takes how long, who serves how much), the test for jumps beyond smooth change, the
interval of the moment and the joining of what moved together. Never looks at attributes or causes, and never
calls a day's load a change.
"""

from __future__ import annotations

from tailscope_analyzer._changes._find import Changes, find_changes

__all__ = ["Changes", "find_changes"]
