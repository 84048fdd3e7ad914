"""What is simulated: the options of an inference service.

Owns the numbers that a healthy service has. Times are those of an idle machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailscope_analyzer.simulate._traffic import STEADY, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Describe a service: gateway, preprocess, call, queue, prefill, decode, postprocess, serialise."""

    name: str = "llm"
    gateway: str | None = "gateway"
    """Who authenticates and calls the service; None lets clients call it, and authentication is its own."""
    sidecar: bool = False
    """The gateway is a proxy beside each instance, on its host."""
    peer: str = "feature-store"
    """Whom each request calls before inference; it sends no spans."""
    traffic: Traffic = STEADY
    per_s: float = 20.0
    """Requests that come, on average over the window."""
    swing: float = 0.0
    """How far the rate swings once in the window, as a share of it: a day's load."""
    instances: int = 2
    slots: int = 8
    """Requests (or batches) that one instance runs side by side."""
    batch_size: int = 1
    """Most requests of a batch; 1 runs each by itself."""
    batch_delay_ms: float = 5.0
    """How long the first of a batch waits for others."""
    each: float = 0.05
    """Share of the GPU's work that every further member of a batch adds."""
    auth_ms: float = 1.0
    network_ms: float = 0.4
    """One way between gateway and service."""
    preprocess_ms: float = 4.0
    call_ms: float = 6.0
    host_ms: float = 2.0
    """Work of the host inside inference: launches, copies."""
    fixed_ms: float = 20.0
    """Of each prefill, whatever the input."""
    input_token_ms: float = 0.02
    output_token_ms: float = 2.0
    postprocess_ms: float = 2.0
    serialise_ms: float = 1.0
    spread: float = 0.12
    """Standard deviation of the logarithm of every duration."""
    models: int = 1
    versions: int = 1
    adapters: int = 0
    """LoRA adapters that requests ask for, a few of them often."""
    shapes: int = 0
    """Values of input.shape; 0 sends none."""
    sends_gpu_time: bool = True
