"""An inference service in silico: traffic like real LLM traffic, faults on demand, and the truth about both.

Owns `run` and what it takes: a `Service`, faults, and blemishes of the recording. It makes data and judges
none.
"""

from __future__ import annotations

from tailscope_analyzer.simulate._fault import Fault
from tailscope_analyzer.simulate._faults_of_calls import (
    ClientSide,
    ConnectionSetup,
    NetworkDelay,
    RetryStorm,
    SlowDependency,
)
from tailscope_analyzer.simulate._faults_of_first_times import AdapterLoad, ColdStart, Recompilation
from tailscope_analyzer.simulate._faults_of_gpu import (
    GpuContention,
    HostBound,
    IdleClock,
    KvPreemption,
    NoisyNeighbour,
    Thermal,
)
from tailscope_analyzer.simulate._faults_of_load import (
    BatchWindow,
    CacheMiss,
    LargePayload,
    LongPrompts,
    Overload,
    SlowInstance,
    SlowVersion,
)
from tailscope_analyzer.simulate._faults_of_processes import (
    CpuContention,
    CpuThrottling,
    EventLoopBlocked,
    GcPause,
    LockConvoy,
    MemoryPressure,
)
from tailscope_analyzer.simulate._recording import Blemish, ClockGrain, ClockSkew, DroppedSpans, Sampled
from tailscope_analyzer.simulate._run import Planted, Simulation, Truth, run
from tailscope_analyzer.simulate._service import Service
from tailscope_analyzer.simulate._traffic import CODE, CONVERSATION, STEADY, Traffic

__all__ = [
    "CODE",
    "CONVERSATION",
    "STEADY",
    "AdapterLoad",
    "BatchWindow",
    "Blemish",
    "CacheMiss",
    "ClientSide",
    "ClockGrain",
    "ClockSkew",
    "ColdStart",
    "ConnectionSetup",
    "CpuContention",
    "CpuThrottling",
    "DroppedSpans",
    "EventLoopBlocked",
    "Fault",
    "GcPause",
    "GpuContention",
    "HostBound",
    "IdleClock",
    "KvPreemption",
    "LargePayload",
    "LockConvoy",
    "LongPrompts",
    "MemoryPressure",
    "NetworkDelay",
    "NoisyNeighbour",
    "Overload",
    "Planted",
    "Recompilation",
    "RetryStorm",
    "Sampled",
    "Service",
    "Simulation",
    "SlowDependency",
    "SlowInstance",
    "SlowVersion",
    "Thermal",
    "Traffic",
    "Truth",
    "run",
]
