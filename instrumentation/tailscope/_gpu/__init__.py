"""GPU time of stages: events on the device's own streams, read later, off the request path.

Owns what the recording core calls: `open_stage` for `stage(name, gpu=True)`, `settle` for flush and
shutdown, `begin` and `end` for work that several spans share, `register` for a device library that we do not
know. Importing it imports no device library and starts nothing.
"""

from __future__ import annotations

from tailscope._gpu._registry import register
from tailscope._gpu._resolver import settle
from tailscope._gpu._stage import begin, end, open_stage

__all__ = ["begin", "end", "open_stage", "register", "settle"]
