"""What becomes of a profile's slices: which trace each is in, with which id, when, and of which stage.

Owns the traces of a profile: one for each profiler step and one for what is left, or everything beneath an
existing span. Ids come from the content, so that a file imported twice is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from tailscope_collector._files._chrome_events import members
from tailscope_collector._files._chrome_nesting import STEP, WINDOW, Tree
from tailscope_collector._files._chrome_slices import NEVER, Profile
from tailscope_collector._stages import stage_of_span

if TYPE_CHECKING:
    from tailscope_collector._files._chrome_events import ChromeText

INFERENCE: Final = "inference"
_BASE: Final = "baseTimeNanoseconds"
# A profile that has one of these is of a model: what runs in it is inference, unless an annotation says more.
_MODEL_CATEGORIES: Final = frozenset({"cpu_op", "kernel", "cuda_runtime", "mtia_runtime", "gpu_memcpy"})
_SEED_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Under:
    """The span that a profile belongs beneath."""

    trace_id: bytes
    span_id: bytes
    service: str
    start_ns: int
    end_ns: int
    stage: str = INFERENCE


@dataclass(frozen=True, slots=True)
class Plan:
    """What all spans of a file need to know."""

    source: ChromeText
    profile: Profile
    tree: Tree
    seed: bytes
    shift_ns: int
    """Added to the times of the file."""
    moved_ns: int
    """The part of the shift that is not the file's own base."""
    under: Under | None
    roots: list[int]
    """Of each slice the step that it is in, -1: the file."""
    root_slice: int
    """The slice that all the others of no parent are beneath; -1: none, so one is made where it is needed."""
    stages: list[str]

    @property
    def needs_root(self) -> bool:
        """Whether there are slices that nothing is around."""
        return self.under is None and self.root_slice < 0 and any(step < 0 for step in self.roots)

    @property
    def root_id(self) -> bytes:
        """The id of the span that is made around them."""
        return _nth_id(self.seed, 0)

    def span_id(self, index: int) -> bytes:
        """Return the id of a slice."""
        return _nth_id(self.seed, index + 1)

    def trace_id(self, step: int) -> bytes:
        """Return the id of the trace of a step, or of the file (-1)."""
        if self.under is not None:
            return self.under.trace_id
        if step < 0:
            return self.seed
        return blake2b(self.seed + step.to_bytes(8, "big"), digest_size=16).digest()

    def parent_id(self, index: int) -> bytes:
        """Return the id of the span above a slice; empty for the root of a trace."""
        parent = self.tree.slices[index].parent
        if parent >= 0:
            return self.span_id(parent)
        if self.under is not None and self.root_slice in (index, -1):
            return self.under.span_id
        if index in (self.roots[index], self.root_slice):
            return b""
        return self.span_id(self.root_slice)


def _nth_id(seed: bytes, number: int) -> bytes:
    """Return one of 2**64 ids; an odd step through all numbers repeats none."""
    step = int.from_bytes(seed[:8], "big") | 1
    first = int.from_bytes(seed[8:], "big")
    return (((first + step * number) % (2**64)) or step).to_bytes(8, "big")


def plan_of(source: ChromeText, profile: Profile, tree: Tree, under: Under | None) -> Plan:
    slices = profile.slices
    seed = source.digest(_SEED_BYTES)
    if under is not None:
        seed = blake2b(seed + under.trace_id + under.span_id, digest_size=_SEED_BYTES).digest()
    roots = _roots(tree) if under is None else [-1] * len(slices)
    alone = [index for index, made in enumerate(slices) if made.parent < 0 and roots[index] < 0]
    windows = [index for index in alone if slices[index].category == WINDOW]
    single = alone[0] if len(alone) == 1 else -1
    base_ns = _base_ns(source)
    moved_ns = _moved_ns(profile, base_ns, under)
    return Plan(
        source,
        profile,
        tree,
        seed,
        base_ns + moved_ns,
        moved_ns if under is not None else 0,
        under,
        roots,
        windows[0] if windows else single,
        _stages(profile, under),
    )


def _roots(tree: Tree) -> list[int]:
    """Return of every slice the step at its top; steps are cut from what is around them."""
    roots = [-1] * len(tree.slices)
    known = [False] * len(tree.slices)
    for index in tree.steps:
        tree.slices[index].parent = -1
        roots[index], known[index] = index, True
    for index in range(len(roots)):
        path: list[int] = []
        at = index
        while at >= 0 and not known[at]:
            path.append(at)
            known[at] = True
            at = tree.slices[at].parent
        root = roots[at] if at >= 0 else -1
        for passed in path:
            roots[passed] = root
    return roots


def _base_ns(source: ChromeText) -> int:
    """Return what the file says is to be added to its times."""
    tracer = members(source.header.get("viztracer_metadata"))
    base = source.header.get(_BASE, tracer.get(_BASE))
    return base if isinstance(base, int) else 0


def _moved_ns(profile: Profile, base_ns: int, under: Under | None) -> int:
    """Return by how much a file is moved.

    A profile that does not touch the span that it is put under was taken at another time: it is moved to the
    start of the span. A clock that begins at 0 is moved by a microsecond, because 0 is "not set" in OTLP.
    """
    if not profile.slices:
        return 0
    first = min(made.start for made in profile.slices) + base_ns
    if under is None:
        return 0 if first > 0 else 1000 - first
    last = max(made.end if made.end != NEVER else made.start for made in profile.slices) + base_ns
    return 0 if first <= under.end_ns and under.start_ns <= last else under.start_ns - first


def _stages(profile: Profile, under: Under | None) -> list[str]:
    """Return the stage of every slice of a model's profile, from outside in; empty: none to say."""
    slices = profile.slices
    stages = [""] * len(slices)
    if not any(made.category in _MODEL_CATEGORIES for made in slices):
        return stages
    outer = under.stage if under is not None else INFERENCE
    frames = {WINDOW} if under is None else set[str]()
    for index in sorted(range(len(slices)), key=lambda index: (slices[index].is_device, slices[index].start)):
        made = slices[index]
        if made.category in frames or (under is None and made.name.startswith(STEP)):
            continue
        around = (stages[made.parent] if made.parent >= 0 else "") or outer
        own = made.category == "user_annotation" and stage_of_span("", made.name, "internal", None)
        stages[index] = own or around
    return stages
