"""Stages inside a service that has set an OpenTelemetry SDK: its provider records, we change nothing of it.

Owns the translation of our stages to spans of another tracer. Never adds a processor, exporter or sampler to
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext, StatusCode

from tailscope import _guard
from tailscope._record import ERROR_TYPE, KINDS, NOT_ERRORS, describe, error_type
from tailscope._values import fields_of
from tailscope.conventions import STAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.context.context import Context


class ForeignSpan:
    """One span of another SDK that a stage of ours stands for."""

    __slots__ = ("span",)

    def __init__(self, span: trace.Span) -> None:
        self.span = span

    def end(self, error: BaseException | None, end_time: int | None = None) -> None:
        """End the span now or at `end_time` (Unix ns), marked as failed where an exception leaves it."""
        try:
            if error is not None and not isinstance(error, NOT_ERRORS):
                self.span.record_exception(error, escaped=True)
                self.span.set_attribute(ERROR_TYPE, error_type(error))
                self.span.set_status(StatusCode.ERROR, describe(error))
            self.span.end(end_time)
        except Exception as failure:  # noqa: BLE001 - a provider of the service's own may raise anything
            _guard.report("sdk", f"The service's own tracer failed to end a span: {failure!r}")


class ForeignTracer:
    """Starts spans of another SDK for our stages."""

    __slots__ = ("_tracer",)

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def start(
        self,
        name: str,
        kind: int,
        stage: str | None,
        attributes: Mapping[str, Any] | None,
        context: Context,
        *,
        links: Sequence[SpanContext] = (),
        start_time: int | None = None,
    ) -> ForeignSpan:
        """Start a span beneath the context's span, now or at `start_time` (Unix ns)."""
        fields = fields_of(attributes) or {}
        if stage is not None:
            fields[STAGE] = stage
        linked = [Link(context) for context in links]
        try:
            span = self._tracer.start_span(str(name), context, KINDS[kind], fields, linked, start_time)
        except Exception as failure:  # noqa: BLE001 - a provider of the service's own may raise anything
            _guard.report("sdk", f"The service's own tracer failed to start a span: {failure!r}")
            span = trace.INVALID_SPAN
        return ForeignSpan(span)
