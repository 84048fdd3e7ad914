"""What the integrations of model libraries share: whether there is a request, and how inputs are told.

Owns no replacement and no span. Never reads the content of a tensor: on a GPU that would wait for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailscope._current import SPAN_KEY, get_current
from tailscope.conventions import INPUT_SHAPE

if TYPE_CHECKING:
    from collections.abc import Sequence

INPUT_DTYPE: Final = "input.dtype"

MAX_INPUTS: Final = 16
"""Inputs whose shapes are told; decoders with a cache have hundreds."""

MAX_KNOWN: Final = 256
"""Combinations of shapes kept of one model; with free lengths there is no end of them."""


def inside_request() -> bool:
    """Say whether the current context is inside a span that records."""
    span: Any = get_current().get(SPAN_KEY)
    return span is not None and span.is_recording()


def shape_text(shape: Sequence[Any]) -> str:
    """Return a shape as `8x128`, one text that can be counted and compared; `scalar` for none."""
    return "x".join(map(str, shape)) or "scalar"


class Inputs:
    """The inputs that a model has had: shapes repeat, and making their text costs more than the stage."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Any, dict[str, Any]] = {}

    def describe(self, values: Sequence[Any], names: Sequence[str] = ()) -> dict[str, Any]:
        """Return shapes and types of what has them: `8x128`, or `ids=8x128, mask=8x128` of several."""
        key = tuple([(getattr(value, "shape", None), getattr(value, "dtype", None)) for value in values])
        found = self._known.get(key)
        if found is None:
            found = described(key, names if len(values) > 1 else ())
            if len(self._known) < MAX_KNOWN:
                self._known[key] = found
        return found


def described(inputs: Sequence[tuple[Any, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of inputs given as pairs of shape and type."""
    shapes: list[str] = []
    types: list[str] = []
    for place, (shape, dtype) in enumerate(inputs):
        if shape is None or dtype is None or len(shapes) == MAX_INPUTS:
            continue
        text = shape_text(shape)
        shapes.append(f"{names[place]}={text}" if names else text)
        types.append(str(dtype).removeprefix("torch."))
    if not shapes:
        return {}
    return {INPUT_SHAPE: ", ".join(shapes), INPUT_DTYPE: ", ".join(dict.fromkeys(types))}
