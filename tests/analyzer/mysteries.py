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
    ClientSide,
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


CONFIRMED, POSSIBLE = "confirmed", "possible"
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
    "late host": Mystery("host_bound", HostBound(), confidence=POSSIBLE),
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
    "stopped processor": Mystery("process_stall", CpuThrottling(told=False)),
    "collector that says nothing": Mystery("process_stall", GcPause(told=False), Service(per_s=60)),
    "memory that says nothing": Mystery("host_bound", MemoryPressure(told=False), confidence=POSSIBLE),
    "time that nothing tells of": Mystery(
        "unattributed", MemoryPressure(told=False), Service(sends_gpu_time=False), confidence=POSSIBLE
    ),
    "slow clients": Mystery("client_side", ClientSide(), confidence=CONFIRMED),
    "adapters": Mystery("adapter_load", AdapterLoad(), Service(adapters=12), confidence=CONFIRMED),
}
BURSTS = replace(STEADY, gaps=CODE.gaps, bursts=0.15)
VARIANTS = {
    "slow peer, other size": Mystery(
        "slow_dependency", SlowDependency(ms=150, share=0.06), Service(instances=3), n=1500
    ),
    "slow peer in bursts": Mystery(
        "slow_dependency",
        SlowDependency(ms=200, share=0.05),
        Service(traffic=BURSTS, per_s=30, slots=64),
        n=1500,
    ),
    "slow peer, short queues": Mystery(
        "slow_dependency", SlowDependency(ms=300, share=0.05), Service(slots=2), n=1500
    ),
    "short retries": Mystery("retries", RetryStorm(told=False, ms=250, share=0.06)),
    "connections, often": Mystery("connection_setup", ConnectionSetup(ms=120, share=0.08)),
    "short way": Mystery("network_delay", NetworkDelay(ms=120, share=0.06)),
    "rare, long way": Mystery(
        "network_delay", NetworkDelay(ms=400, share=0.02), Service(per_s=60, instances=4)
    ),
    "slow way in bursts": Mystery(
        "network_delay",
        NetworkDelay(ms=200, share=0.05),
        Service(traffic=BURSTS, per_s=15, slots=64),
        n=1500,
    ),
    "slow clients, no gateway": Mystery("client_side", ClientSide(ms=150), Service(gateway=None)),
    "slow clients, untold": Mystery("unattributed", ClientSide(told=False)),
    "collector, untold, seldom met": Mystery("process_stall", GcPause(told=False)),
    "collector, untold, short": Mystery(
        "process_stall",
        GcPause(told=False, count=14, ms=150),
        Service(per_s=60, instances=3),
        n=1500,
    ),
    "collector, untold, no gateway": Mystery(
        "process_stall", GcPause(told=False), Service(gateway=None, per_s=80)
    ),
    "collector, short": Mystery(
        "gc_pause", GcPause(count=14, ms=150), Service(per_s=60, instances=3), n=1500
    ),
    "quota of a proxy, often": Mystery(
        "cpu_throttling", CpuThrottling(told=False, ms=60, share=0.1), Service(sidecar=True)
    ),
    "stopped processor, no gateway": Mystery(
        "process_stall", CpuThrottling(told=False), Service(gateway=None, per_s=40)
    ),
    "shared processor, busier": Mystery(
        "cpu_contention",
        CpuContention(told=False, count=3, length_ms=1500),
        Service(instances=3, per_s=40),
        n=1500,
    ),
    "longer lock": Mystery("lock_contention", LockConvoy(told=False, ms=80), Service(per_s=15)),
    "blocked loop, busier": Mystery(
        "event_loop_blocked", EventLoopBlocked(told=False), Service(per_s=8, output_token_ms=4)
    ),
    "slow after long pauses": Mystery(
        "gpu_idle_clock", IdleClock(told=False, after_ms=800, times=5), Service(per_s=4, instances=3)
    ),
    "one hot card": Mystery("gpu_thermal", Thermal(), Service(instances=1)),
    "somebody else's kernels, three cards": Mystery(
        "gpu_contention", GpuContention(), Service(instances=3), n=1200
    ),
    "another model loads, three instances": Mystery(
        "noisy_neighbour", NoisyNeighbour(), Service(instances=3), n=1500
    ),
    "short batch window": Mystery("batch_window", BatchWindow(delay_ms=90), Service(batch_size=4, per_s=5)),
    "too many, two slots": Mystery("queueing", Overload(times=1.8), Service(slots=2, per_s=30)),
    "behind a larger prompt": Mystery(
        "head_of_line", LongPrompts(tokens=80_000, share=0.004), Service(slots=1, per_s=5), n=1500
    ),
    "beside a huge prompt, small batches": Mystery(
        "batch_mate",
        LongPrompts(tokens=25_000),
        Service(batch_size=4, batch_delay_ms=80, per_s=40),
        n=1200,
    ),
    "larger prompts": Mystery("large_input", LongPrompts(tokens=12_000, share=0.03), Service(slots=64)),
    "one of three replicas": Mystery("slow_instance", SlowInstance(times=2), Service(instances=3)),
    "a version of many": Mystery("slow_version", SlowVersion(times=2, share=0.3), Service(instances=4)),
    "cache, often cold": Mystery("cache_miss", CacheMiss(ms=120, share=0.15)),
    "larger answers": Mystery("large_payload", LargePayload(ms_per_mb=60)),
    "short cold start": Mystery("cold_start", ColdStart(told=False, ms=900), Service(instances=6)),
    "short compiles": Mystery("recompilation", Recompilation(told=False, ms=500), Service(shapes=24)),
    "adapters, untold": Mystery("adapter_load", AdapterLoad(told=False, room=8), Service(adapters=16)),
}
"""No detector was made with these at hand; `benchmarks.attribution` runs them."""
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
