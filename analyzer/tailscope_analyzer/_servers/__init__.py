"""Servers that know nothing of Tailscope: which of their spans, attributes and events are which stage.

Owns the table (`servers.toml`, and a user's file before it), the stage of a span, and the child spans that
only attributes or events tell of. Support for another server is another row. Changes no recorded span.
"""

from __future__ import annotations

from tailscope_analyzer._servers._durations import read_durations
from tailscope_analyzer._servers._match import Servers, known_servers, load_servers, stage_of

__all__ = ["Servers", "known_servers", "load_servers", "read_durations", "stage_of"]
