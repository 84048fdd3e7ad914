"""Samplers and span processors of the SDK that the service plugs in: they see our spans, at their own price.

Owns what a span does for them. Where nothing is plugged in, nothing of this runs. Never lets what they raise
reach the host: a sampler that fails samples, a processor that fails is left out of that span.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from tailscope import _guard
from tailscope._current import SPAN_KEY, get_current
from tailscope._local import (
    FLAGS_OF_OWN_TRACE,
    LocalTrace,
    beneath,
    context_of,
    new_bits,
    own_trace,
    trace_of,
    wire_id,
)
from tailscope._record import KINDS, Extra, more, parent_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.sampling import Sampler

    from tailscope._span import Span

DEFAULT_SAMPLER: Final = "parentbased_always_on"


class Plugs:
    """What is plugged into one recorder."""

    __slots__ = ("children", "processors", "resource", "sampler")

    def __init__(self, sampler: Sampler | None, resource: Mapping[str, Any]) -> None:
        self.sampler = sampler
        self.processors: tuple[SpanProcessor, ...] = ()
        self.children = sampler is None or inherits(sampler)
        """The spans beneath one of ours need not ask: they are recorded as it is."""
        self.resource = resource

    def add(self, processor: SpanProcessor) -> None:
        """Show spans that begin from now on to a processor, too."""
        self.processors = (*self.processors, processor)


def inherits(sampler: Any) -> bool:
    """Say whether a sampler leaves the children of a sampled local span alone, as ParentBased does."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased

    kept = getattr(sampler, "_local_parent_sampled", None)
    return isinstance(sampler, ParentBased) and kept is ALWAYS_ON


def sampler_named(name: str, argument: str) -> Sampler | None:
    """Return the sampler that OTEL_TRACES_SAMPLER names; None for the default, which samples all of ours."""
    if name == DEFAULT_SAMPLER:
        return None
    from opentelemetry.sdk.trace import sampling

    base, based = name.removeprefix("parentbased_"), name.startswith("parentbased_")
    if base == "traceidratio":
        root: Sampler = sampling.TraceIdRatioBased(ratio_of(argument))
    elif base in {"always_on", "always_off"}:
        root = sampling.ALWAYS_ON if base == "always_on" else sampling.ALWAYS_OFF
    else:
        raise ValueError(
            "want one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, "
            "parentbased_traceidratio"
        )
    return sampling.ParentBased(root) if based else root


def ratio_of(argument: str) -> float:
    """Return the ratio that OTEL_TRACES_SAMPLER_ARG gives; 1 for none and for what is no ratio."""
    try:
        ratio = float(argument or 1.0)
    except ValueError:
        ratio = -1.0
    if 0.0 <= ratio <= 1.0:
        return ratio
    _guard.report("setting:sampler", f"OTEL_TRACES_SAMPLER_ARG cannot be {argument!r}: want 0 to 1. It is 1")
    return 1.0


def sampler_from_environment() -> Sampler | None:
    """Return what OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG ask for; None for the default."""
    name = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or DEFAULT_SAMPLER
    try:
        return sampler_named(name, os.environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip())
    except ValueError as error:
        _guard.report("setting:sampler", f"OTEL_TRACES_SAMPLER cannot be {name!r}: {error}. All are sampled")
        return None


def begin_sampled(span: Span, parent: Any, scope: Any) -> bool:
    """Ask the sampler, and take the part of the trace and the parent that follow from its answer."""
    above = context_of(parent)
    local = own_trace() if above is None else getattr(parent, "_local", None) or trace_of(above)
    span._parent_id = 0 if above is None else wire_id(above.span_id)
    result: Any = None
    with _guard.guard("sampler"):
        context = get_current()
        if context.get(SPAN_KEY) is not parent:
            context = trace.set_span_in_context(parent if above is not None else trace.INVALID_SPAN)
        trace_id = int.from_bytes(local.trace_id, "big")
        result = scope.plugs.sampler.should_sample(
            context, trace_id, span._name, KINDS[span._kind], span._attributes, None, local.state
        )
    if result is None:
        span._local = local
        return True
    sampled, state = result.decision.is_sampled(), result.trace_state or local.state
    if not result.decision.is_recording():
        trace_id, span_id = int.from_bytes(local.trace_id, "big"), wire_id(new_bits(64))
        span._context = SpanContext(trace_id, span_id, False, TraceFlags(0), state)
        return False
    span._local = answered(local, sampled=sampled, state=state)
    if result.attributes:
        span._attributes = {**(span._attributes or {}), **result.attributes}
    if not sampled:
        more(span).record_only = True
    return True


def answered(local: LocalTrace, *, sampled: bool, state: Any) -> LocalTrace:
    """Return the part of the trace with the sampler's flags and state; the same one where they agree."""
    flags = local.flags
    if bool(flags.sampled) != sampled:
        flags = FLAGS_OF_OWN_TRACE if sampled else TraceFlags(flags & ~TraceFlags.SAMPLED)
    if flags == local.flags and state == local.state:
        return local
    other = beneath(local)
    other.flags, other.state = flags, state
    other.otlp_flags = other.otlp_flags & ~0xFF | flags
    other.remote_parent_id = local.remote_parent_id
    other.server, other.gc_mark = local.server, local.gc_mark
    return other


def started(span: Span, plugs: Plugs) -> None:
    """Show a span that begins to the processors; they may set attributes."""
    for processor in plugs.processors:
        try:
            processor.on_start(span, get_current())  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - it is the service's own and may raise anything
            _guard.report("processor", f"{type(processor).__name__}.on_start failed: {error!r}")


def ended(span: Span, plugs: Plugs) -> bool:
    """Show an ended span to the processors; return whether the collector is to have it, too."""
    if plugs.processors:
        with _guard.guard("readable"):
            shown = readable(span, plugs.resource)
            for processor in plugs.processors:
                try:
                    processor.on_end(shown)
                except Exception as error:  # noqa: BLE001 - it is the service's own and may raise anything
                    _guard.report("processor", f"{type(processor).__name__}.on_end failed: {error!r}")
    return span._extra is None or not span._extra.record_only


SHOWN: Final = frozenset(
    {
        "dropped_attributes",
        "dropped_events",
        "dropped_links",
        "end_time",
        "events",
        "instrumentation_info",
        "instrumentation_scope",
        "links",
        "resource",
        "start_time",
        "status",
        "to_json",
    }
)
"""What the SDK's span has and ours has not."""


def view(span: Span, name: str) -> Any:
    """Return what the SDK's span of this name would have."""
    if name not in SHOWN or span._end_ns < 0:
        raise AttributeError(f"{type(span).__name__!r} object has no attribute {name!r}")
    plugs = span._scope.plugs
    return getattr(readable(span, plugs.resource if plugs is not None else {}), name)


def readable(span: Span, resource: Mapping[str, Any]) -> ReadableSpan:
    """Return the SDK's view of an ended span."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link

    from tailscope.conventions import STAGE

    extra = span._extra or Extra()
    anchor_ns = span._local.anchor_ns
    attributes = dict(span._attributes or {})
    if span._stage is not None:
        attributes.setdefault(STAGE, span._stage)
    name, version, schema_url = span._scope.names
    return ReadableSpan(
        name=str(span._name),
        context=span.get_span_context(),
        parent=parent_of(span),
        resource=Resource(dict(resource)),
        attributes=attributes,
        events=[Event(event, fields, at) for event, at, fields in extra.events],
        links=[Link(context, fields) for context, fields in extra.links],
        kind=KINDS[span._kind],
        status=Status(StatusCode(extra.code), extra.message or None),
        start_time=span._start_ns + anchor_ns,
        end_time=(extra.end_unix_nano or span._end_ns + anchor_ns) if span._end_ns else None,
        instrumentation_scope=InstrumentationScope(name, version, schema_url),
    )
