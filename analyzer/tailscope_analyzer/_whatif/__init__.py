"""What latency would be if something were faster, batched otherwise, replicated or cached.

Owns predictions: requests are re-timed in the order that their spans show (or by their ledger), and queues
are served again. It never says what a change costs, or whether it can be made.
"""

from __future__ import annotations

from tailscope_analyzer._whatif._answer import WhatIf, WhatIfRow
from tailscope_analyzer._whatif._change import parse_change
from tailscope_analyzer._whatif._default import default_rows
from tailscope_analyzer._whatif._whatif import whatif

__all__ = ["WhatIf", "WhatIfRow", "default_rows", "parse_change", "whatif"]
