"""The demo: a real model service with planted faults, traced by `import tailscope` alone.

Owns `tailscope demo`: two services, the load that drives them and the table of what was planted. Talks to the
collector as a user would, over OTLP, HTTP and the public commands; nothing in a span is made up here.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__: list[str] = []

# The processes of the demo need these; said before any is started, so that the dispatcher names the extra.
for _name in ("rich", "fastapi", "uvicorn", "httpx", "numpy", "onnx", "onnxruntime", "duckdb", "streamlit"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"No module named {_name!r}", name=_name)
