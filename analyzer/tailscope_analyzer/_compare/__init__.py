"""What changed between two populations of requests: the difference, split without a remainder.

Owns comparing two windows, versions or a single trace with its like: `compare` gives a `Comparison`. Reads
requests, ledger and (for numbers of calls) spans; never opens a store or prints.
"""

from tailscope_analyzer._compare._compare import compare
from tailscope_analyzer._compare._comparison import Comparison

__all__ = ["Comparison", "compare"]
