"""Services with one thing wrong, and healthy ones that look bad, for tests and benchmarks.

Where instrumentation tells nothing (`told=False`) a pattern is all there is: the cause is never confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tailscope_analyzer.simulate import (
    CODE,
    CONVERSATION,
    STEADY,
    AdapterLoad,
    BatchWindow,
    Blemish,
    CacheMiss,
    ClockGrain,
    ColdStart,
    ConnectionSetup,
    CpuContention,
    CpuThrottling,
    EventLoopBlocked,
    Fault,
    GcPause,
    GpuContention,
    HostBound,
    IdleClock,
    KvPreemption,
    LargePayload,
    LockConvoy,
    LongPrompts,
    MemoryPressure,
    NetworkDelay,
    NoisyNeighbour,
    Overload,
    Recompilation,
    RetryStorm,
    Sampled,
    Service,
    SlowDependency,
    SlowInstance,
    SlowVersion,
    Thermal,
)


@dataclass(frozen=True)
class Mystery:
    """Say what is wrong with which service, and what that is."""

    cause: str
    fault: Fault
    service: Service = field(default_factory=Service)
    n: int = 900
    confidence: str = "likely"


CONFIRMED = "confirmed"
MYSTERIES = {
    "slow peer": Mystery("slow_dependency", SlowDependency()),
    "retries that are counted": Mystery("retries", RetryStorm(), confidence=CONFIRMED),
    "retries that are only calls": Mystery("retries", RetryStorm(told=False)),
    "connections that are not kept": Mystery("connection_setup", ConnectionSetup(), confidence=CONFIRMED),
    "slow way": Mystery("network_delay", NetworkDelay()),
    "collector behind a gateway": Mystery(
        "gc_pause", GcPause(count=6), Service(per_s=80), confidence=CONFIRMED
    ),
    "quota that is stated": Mystery("cpu_throttling", CpuThrottling(), confidence=CONFIRMED),
    "quota of a proxy": Mystery("cpu_throttling", CpuThrottling(told=False), Service(sidecar=True)),
    "run queue that is stated": Mystery("cpu_contention", CpuContention(), confidence=CONFIRMED),
    "shared processor": Mystery("cpu_contention", CpuContention(told=False), n=1200),
    "major faults": Mystery("memory_pressure", MemoryPressure(), confidence=CONFIRMED),
    "lock that states its wait": Mystery("lock_contention", LockConvoy(), confidence=CONFIRMED),
    "lock that says nothing": Mystery("lock_contention", LockConvoy(told=False)),
    "loop that states its lag": Mystery(
        "event_loop_blocked", EventLoopBlocked(), Service(per_s=10), confidence=CONFIRMED
    ),
    "blocked loop with sub-stages": Mystery(
        "event_loop_blocked", EventLoopBlocked(told=False), Service(per_s=6, output_token_ms=8)
    ),
    "clock after pauses": Mystery("gpu_idle_clock", IdleClock(), Service(per_s=6), confidence=CONFIRMED),
    "slow after pauses": Mystery("gpu_idle_clock", IdleClock(told=False), Service(per_s=6)),
    "hot card": Mystery("gpu_thermal", Thermal(), confidence=CONFIRMED),
    "somebody else's kernels": Mystery("gpu_contention", GpuContention()),
    "late host": Mystery("host_bound", HostBound()),
    "preempted": Mystery("kv_preemption", KvPreemption(), confidence=CONFIRMED),
    "another model loads": Mystery("noisy_neighbour", NoisyNeighbour(), n=1200),
    "batch that never fills": Mystery(
        "batch_window", BatchWindow(), Service(batch_size=8, per_s=6), confidence=CONFIRMED
    ),
    "too many": Mystery("queueing", Overload(), Service(slots=1, per_s=16)),
    "behind a huge prompt": Mystery(
        "head_of_line", LongPrompts(tokens=60_000, share=0.004), Service(slots=1, per_s=6), n=2000
    ),
    "beside a huge prompt": Mystery(
        "batch_mate",
        LongPrompts(tokens=20_000),
        Service(batch_size=8, batch_delay_ms=100, per_s=40),
        n=1200,
    ),
    "huge prompts": Mystery("large_input", LongPrompts(tokens=8_000, share=0.04), Service(slots=64)),
    "one bad replica": Mystery("slow_instance", SlowInstance(), Service(instances=5)),
    "one bad version": Mystery("slow_version", SlowVersion()),
    "cold cache": Mystery("cache_miss", CacheMiss(), confidence=CONFIRMED),
    "huge answers": Mystery("large_payload", LargePayload()),
    "roll-out that says so": Mystery("cold_start", ColdStart(), Service(instances=4), confidence=CONFIRMED),
    "roll-out": Mystery("cold_start", ColdStart(told=False), Service(instances=4)),
    "compiles, says so": Mystery("recompilation", Recompilation(), Service(shapes=16), confidence=CONFIRMED),
    "compiles": Mystery("recompilation", Recompilation(told=False), Service(shapes=16)),
    "adapters": Mystery("adapter_load", AdapterLoad(), Service(adapters=12), confidence=CONFIRMED),
}
HEALTHY: dict[str, tuple[Service, tuple[Blemish, ...]]] = {
    "bursts": (Service(traffic=replace(STEADY, gaps=CODE.gaps, bursts=0.15), per_s=10, slots=64), ()),
    "lengths of chats": (Service(traffic=CONVERSATION, per_s=10, slots=64), ()),
    "two models, one slower": (Service(models=2), ()),
    "a day's load": (Service(swing=0.8, slots=4), ()),
    "sampled": (Service(), (Sampled(share=0.5),)),
    "full batches": (Service(batch_size=8, per_s=60), ()),
    "shapes, adapters, versions": (Service(shapes=16, adapters=12, versions=2, instances=4), ()),
    "a clock of milliseconds": (Service(), (ClockGrain(),)),
}
