"""Ask a collector from Python: SQL into a Polars frame, and the report as an object.

Run it where '.[analyzer]' is installed, with a collector on this machine: python examples/ask.py [URL]
"""

import sys

import tailscope_analyzer as ta

client = ta.connect(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4318")
print(client.sql("select stage, category, sum(self_ms) as ms from stages group by all order by ms desc").pl())

report = ta.report(client.traces(), percentile=0.99)
for row in report.stages[:5]:
    print(f"{row.service:<12} {row.stage:<12} {row.category:<12} {row.excess_ms:+8.1f} ms")
print(report.quality.verdict)
