"""Profiles in Chrome's trace format (PyTorch profiler, viztracer) to OTLP: operations, layers and kernels.

Owns how a slice is written as a span: attributes, sub-stage, resource. Never reads a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.conventions import GPU_DEVICE, GPU_TIME_MS, INPUT_SHAPE, STAGE
from tailscope_collector._files._chrome_events import members
from tailscope_collector._files._chrome_nesting import WINDOW, build_tree
from tailscope_collector._files._chrome_plan import INFERENCE, Plan, Under, plan_of
from tailscope_collector._files._chrome_slices import NEVER, Slice, read_profile
from tailscope_collector._files._foreign import Requests, UnreadableSpanError, set_attributes
from tailscope_collector._otlp_json import LAST_NANOSECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_collector._files._chrome_events import ChromeText
    from tailscope_collector._files._foreign import Pairs
    from tailscope_collector._otlp_json import JsonRequest

SERVICE: Final = "profile"
SCOPE: Final = "chrome"
"""Scopes are `chrome.cpu_op`, `chrome.kernel`, ...: the category of an event."""

ROOT: Final = "profile"

_COPIES: Final = {"HtoD": "h2d", "HOST_TO_DEVICE": "h2d", "DtoH": "d2h", "DEVICE_TO_HOST": "d2h"}
_RENAMED: Final = {"Input Dims": INPUT_SHAPE, "device": GPU_DEVICE}
_ALWAYS_LEFT_OUT: Final = frozenset({"Ev Idx", "Record function id"})


def from_chrome(
    source: ChromeText, *, under: Under | None = None, service: str = ""
) -> Iterator[JsonRequest]:
    """Convert a profile, some thousands of spans a request."""
    profile = read_profile(source)
    tree = build_tree(profile)
    plan = plan_of(source, profile, tree, under)
    resources = _Resources(plan, service)
    requests = Requests()
    for place, reason in profile.refusals:
        requests.refuse(place, reason)
    requests.refused += profile.refused - len(profile.refusals)
    if plan.needs_root:
        _add_root(requests, plan, resources.of(None))
    for index, made in enumerate(profile.slices):
        with requests.refusing(f"{made.name[:60]!r}"):
            span = _span(plan, index)
            scope = f"{SCOPE}.{made.category}" if made.category else SCOPE
            requests.add(resources.of(index), scope).CopyFrom(span)
        if requests.is_full:
            yield requests.take()
    yield requests.take(_warning(plan))


def _warning(plan: Plan) -> str:
    """Say what a user must know of how the file was read."""
    said = ["the file ends inside its events"] if plan.source.is_cut_off else []
    open_ones = sum(made.end == NEVER for made in plan.profile.slices)
    if open_ones:
        said.append(f"{open_ones:,} of them never ended and have no duration")
    if passed_over := plan.profile.passed_over:
        named = ", ".join(f"{count:,} of phase {phase[:20]!r}" for phase, count in passed_over.most_common(5))
        said.append(f"passed over what is no span: {named}")
    if plan.moved_ns:
        said.append(f"moved by {plan.moved_ns / 1e9:+.6f} s to the start of the span it is under")
    return "; ".join(said)


def _span(plan: Plan, index: int) -> Span:
    made = plan.tree.slices[index]
    start = made.start + plan.shift_ns
    end = made.end + plan.shift_ns if made.end != NEVER else 0
    if not 0 < start <= LAST_NANOSECOND or end > LAST_NANOSECOND or end < 0:
        raise UnreadableSpanError("its time is not between the years 1970 and 2262")
    span = Span(
        trace_id=plan.trace_id(plan.roots[index]),
        span_id=plan.span_id(index),
        parent_span_id=plan.parent_id(index),
        name=made.name.encode("utf-16", "surrogatepass").decode("utf-16", "replace"),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=end,
    )
    set_attributes(span.attributes, _attributes(plan, index))
    for mark in plan.tree.instants.get(index, ()):
        span.events.add(name=mark.name, time_unix_nano=max(mark.at + plan.shift_ns, 0))
    for source in plan.tree.links.get(index, ()):
        span.links.add(trace_id=plan.trace_id(plan.roots[source]), span_id=plan.span_id(source))
    return span


def _attributes(plan: Plan, index: int) -> dict[str, Any]:
    made, gpu_ns = plan.tree.slices[index], plan.tree.gpu_ns[index]
    args = _args(plan.source, made)
    found: dict[str, Any] = {
        _RENAMED.get(key, key): value for key, value in args.items() if key not in _ALWAYS_LEFT_OUT
    }
    stage = _stage(plan.stages[index], made, args)
    if stage:
        found[STAGE] = stage
    if gpu_ns:
        found[GPU_TIME_MS] = gpu_ns / 1e6
    if not made.is_device and made.category != WINDOW:
        found["thread.id"] = made.lane[1] if isinstance(made.lane[1], int) else None
        found["thread.name"] = plan.profile.thread_names.get(made.lane)
    return found


def _stage(around: str, made: Slice, args: dict[str, Any]) -> str:
    """Name the sub-stage of what runs on a device: a copy to it, a copy from it, or the model itself."""
    if not made.is_device or not around:
        return around
    way = next(
        (_COPIES[str(args[key])] for key in ("kind", "direction") if str(args.get(key)) in _COPIES), ""
    )
    if not way and made.name.startswith("Memcpy "):
        way = next((stage for mark, stage in _COPIES.items() if mark in made.name), "")
    return way or ("forward" if around == INFERENCE else around)


def _args(source: ChromeText, made: Slice) -> dict[str, Any]:
    args: dict[str, Any] = {}
    for offset in (made.offset, made.end_offset):
        args |= members(source.event(offset).get("args")) if offset >= 0 else {}
    return args


def _add_root(requests: Requests, plan: Plan, resource: Pairs) -> None:
    """Make a span around all that has no other: its children are what the threads did."""
    inside = [made for made, root in zip(plan.profile.slices, plan.roots, strict=True) if root < 0]
    start = min(made.start for made in inside) + plan.shift_ns
    end = max(made.end if made.end != NEVER else made.start for made in inside) + plan.shift_ns
    root = requests.add(resource, SCOPE)
    root.trace_id, root.span_id = plan.seed, plan.root_id
    root.name, root.kind = ROOT, Span.SPAN_KIND_INTERNAL
    root.start_time_unix_nano, root.end_time_unix_nano = start, max(start, end)
    for mark in plan.tree.instants.get(-1, ()):
        root.events.add(name=mark.name, time_unix_nano=max(mark.at + plan.shift_ns, 0))


class _Resources:
    """The resource of each slice: its process; of what ran on a device, the process that launched it."""

    def __init__(self, plan: Plan, service: str) -> None:
        self._slices = plan.tree.slices
        self._service = service or (plan.under.service if plan.under else "")
        self._names = plan.profile.process_names
        self._made: dict[Any, Pairs] = {}
        host = plan.source.header.get("host_name")
        self._host: Pairs = (("host.name", host),) if isinstance(host, str) and host else ()
        pids = [made.lane[0] for made in self._slices if not made.is_device and made.category != WINDOW]
        self._main = max(dict.fromkeys(pids), key=pids.count, default=None)

    def of(self, index: int | None) -> Pairs:
        """Return the resource of a slice, or of the whole file."""
        pid = self._main
        if index is not None:
            made = self._slices[index]
            if made.is_device and made.parent >= 0:
                made = self._slices[made.parent]
            if not made.is_device and made.category != WINDOW:
                pid = made.lane[0]
        if pid not in self._made:
            name = self._service or self._names.get(pid) or SERVICE
            process: Pairs = (("process.pid", pid),) if isinstance(pid, int) else ()
            self._made[pid] = (("service.name", name), *process, *self._host)
        return self._made[pid]
