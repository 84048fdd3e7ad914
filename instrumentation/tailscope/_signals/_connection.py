"""Whether metrics are sent, and to whom.

Owns the meaning of OTEL_METRICS_EXPORTER here. Opens nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope._transport import Target, Transport, metrics_target, open_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def metrics_connection(target: Target, environment: Mapping[str, str]) -> Callable[[], Transport] | None:
    """Return what opens the connection for metrics; None where none are to be sent.

    Args:
        target: where spans go.
        environment: OTEL_METRICS_EXPORTER=none sends none; OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, elsewhere.

    """
    if environment.get("OTEL_METRICS_EXPORTER", "").strip().lower() == "none":
        return None
    found = metrics_target(target, environment)
    return None if found is None else lambda: open_transport(found)
