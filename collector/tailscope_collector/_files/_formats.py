"""Which format a JSON document is, told by what it holds.

Owns the marks of the formats and the converter of each. Never reads a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from tailscope_collector._files._jaeger import from_jaeger
from tailscope_collector._files._triton import from_triton
from tailscope_collector._files._zipkin import from_zipkin
from tailscope_collector._otlp_json import JsonRequest, from_tree

OTLP_JSON: Final = "OTLP JSON"
OTLP_PROTOBUF: Final = "OTLP protobuf"
CHROME: Final = "Chrome trace"
ZIPKIN: Final = "Zipkin v2 JSON"
JAEGER: Final = "Jaeger JSON"
TRITON: Final = "Triton trace JSON"


@dataclass(frozen=True, slots=True)
class Recognised:
    """A document of a known format, and the export requests that it becomes."""

    form: str
    requests: Iterator[JsonRequest]


_Converter = Callable[[Any], Iterator[JsonRequest]]
_Marks = Sequence[tuple[set[str], str, _Converter]]
"""(keys that are there, format, converter); the first that fits is it."""


def recognise(tree: object) -> Recognised | None:
    """Return what a JSON document is; None for a list of nothing known. An object of no mark counts as OTLP.

    Reading the requests raises MalformedRequestError where OTLP is wrong as a whole.
    """
    if isinstance(tree, list):
        items = cast("Sequence[Any]", tree)
        first: Any = items[0] if items else None
        if isinstance(first, list):
            # What Zipkin answers to a search: a list of traces, each a list of spans.
            traces = (cast("Sequence[Any]", trace) for trace in items if isinstance(trace, list))
            return recognise([span for trace in traces for span in trace])
        known = _marked(first, _IN_LISTS)
        return Recognised(known[0], known[1](items)) if known else None
    form, convert = _marked(tree, _OBJECTS) or (OTLP_JSON, _otlp)
    return Recognised(form, convert(tree))


def _marked(item: Any, marks: _Marks) -> tuple[str, _Converter] | None:
    keys = set(map(str, cast("dict[str, Any]", item))) if isinstance(item, dict) else set[str]()
    return next(((form, convert) for wanted, form, convert in marks if wanted <= keys), None)


def _otlp(tree: Any) -> Iterator[JsonRequest]:
    yield from_tree(tree)


def _otlp_answer(tree: Any) -> Iterator[JsonRequest]:
    yield from_tree(tree["result"])


def _otlp_list(trees: Any) -> Iterator[JsonRequest]:
    return map(from_tree, trees)


def _jaeger_data(tree: Any) -> Iterator[JsonRequest]:
    data = tree["data"]
    return from_jaeger(cast("Sequence[Any]", data) if isinstance(data, list) else [data])


def _one(convert: _Converter) -> _Converter:
    return lambda item: convert([item])


def _jaeger_spans(spans: Any) -> Iterator[JsonRequest]:
    return from_jaeger([{"spans": [*spans]}])


_IN_LISTS: Final[_Marks] = (
    ({"resourceSpans"}, OTLP_JSON, _otlp_list),
    ({"traceId", "id"}, ZIPKIN, from_zipkin),
    ({"traceID", "spans"}, JAEGER, from_jaeger),
    ({"traceID", "spanID"}, JAEGER, _jaeger_spans),
    ({"id", "model_name"}, TRITON, from_triton),
    ({"id", "timestamps"}, TRITON, from_triton),
    ({"id", "activity"}, TRITON, from_triton),
)
_OBJECTS: Final[_Marks] = (
    ({"resourceSpans"}, OTLP_JSON, _otlp),
    ({"result"}, OTLP_JSON, _otlp_answer),
    ({"traceId", "id"}, ZIPKIN, _one(from_zipkin)),
    ({"traceID", "spans"}, JAEGER, _one(from_jaeger)),
    ({"traceID", "spanID"}, JAEGER, _one(_jaeger_spans)),
    ({"data"}, JAEGER, _jaeger_data),
    ({"id", "timestamps"}, TRITON, _one(from_triton)),
)
