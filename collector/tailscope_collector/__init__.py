"""The collector: OTLP in, DuckDB, SQL out.

The public face of the package. It owns the data directory; everybody else reads through `open_data` or over
HTTP.
"""

from __future__ import annotations

from tailscope_collector import _quiet as _quiet  # first: grpc reads its level when it is imported
from tailscope_collector._collector import Collector
from tailscope_collector._guards._security import Security
from tailscope_collector._guards._tls import TlsFiles
from tailscope_collector._local import LocalSource, open_data
from tailscope_collector._settings import Settings
from tailscope_collector.errors import CollectorError

__all__ = ["Collector", "CollectorError", "LocalSource", "Security", "Settings", "TlsFiles", "open_data"]
