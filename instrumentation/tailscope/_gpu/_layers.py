"""Time of each layer of a PyTorch model, by module hooks, for some requests.

Owns the hooks of one model. Eager mode only: a compiled or captured model runs without calling hooks, or
would be compiled again for them, so such a model is refused. Requests that are not chosen pay for two empty
calls a layer. Never imports torch: the model is its proof that the host has.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from opentelemetry import trace

from tailscope import _guard
from tailscope._gpu._stage import open_stage
from tailscope.conventions import LAYER_CLASS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from opentelemetry.trace import SpanContext

    from tailscope._stage import Stage

EVERY: Final = 100
MAX_LAYERS: Final = 256
"""Modules hooked; of a larger model those that come first."""
MAX_SPANS: Final = 512
"""Layers timed in one request: a token at a time, a model of 200 layers has 20 000 calls a second."""


class Running(threading.local):
    """What the calling thread does: forwards of a chosen request under way, open layers, spans so far."""

    depth = 0
    trace_id = 0
    spans = 0

    def __init__(self) -> None:
        self.open: list[tuple[Any, Stage, BaseException | None]] = []

    def abandon(self) -> None:
        """Forget a forward that a KeyboardInterrupt ended: torch calls no hooks then."""
        self.depth = 0
        self.open.clear()


class LayerTimes:
    """Hooks on the layers of one model, until `stop` or the end of a `with` block; none on a refused one."""

    def __init__(self, model: Any, layers: list[tuple[str, Any]], every: int) -> None:
        self.names: tuple[str, ...] = tuple(name for name, _ in layers)
        """The layers that are timed, as `model.named_modules()` calls them."""
        self._every = every
        self._running = Running()
        self._handles: list[Any] = []
        if layers:
            self._hook(model, self._forward_begins, self._forward_ends)
        for name, layer in layers:
            self._hook(layer, self._opener(name), self._layer_ends)

    def _hook(self, module: Any, before: Any, after: Any) -> None:
        self._handles.append(module.register_forward_pre_hook(in_eager_mode(before)))
        self._handles.append(module.register_forward_hook(in_eager_mode(after), always_call=True))

    def stop(self) -> None:
        """Take the hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def _forward_begins(self, *_arguments: Any) -> None:
        running = self._running
        with _guard.guard("layers"):
            context = trace.get_current_span().get_span_context()
            if running.depth and context.trace_id != running.trace_id:
                running.abandon()
            if running.depth:
                running.depth += 1
                return
            if not self._chosen(context) or is_captured():
                return
            if context.trace_id != running.trace_id:
                running.trace_id, running.spans = context.trace_id, 0
            running.depth = 1

    def _chosen(self, context: SpanContext) -> bool:
        """Say whether the request is one of those timed: all its forwards are, or none."""
        return context.trace_flags.sampled and context.trace_id % self._every == 0

    def _forward_ends(self, *_arguments: Any) -> None:
        running = self._running
        if running.depth:
            running.depth -= 1

    def _opener(self, name: str) -> Any:
        """Return the hook that opens the span of one layer."""
        running = self._running
        span_name = f"layer {name}"

        def layer_begins(module: Any, *_arguments: Any) -> None:
            if not running.depth or running.spans >= MAX_SPANS:
                return
            with _guard.guard("layers"):
                running.spans += 1
                opened = open_stage(span_name, {LAYER_CLASS: type(module).__name__})
                opened.__enter__()
                # The service may call the model while it handles an exception of its own.
                running.open.append((module, opened, sys.exc_info()[1]))

        return layer_begins

    def _layer_ends(self, module: Any, *_arguments: Any) -> None:
        open_layers = self._running.open
        if not open_layers or open_layers[-1][0] is not module:
            return
        with _guard.guard("layers"):
            _, opened, handled = open_layers.pop()
            error = sys.exc_info()[1]
            if error is None or error is handled:
                opened.__exit__(None, None, None)
            else:
                opened.__exit__(type(error), error, None)


def in_eager_mode(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that does nothing, and breaks no graph, where torch compiles what calls it."""
    torch: Any = sys.modules["torch"]
    is_compiling = torch.compiler.is_compiling

    def eager(*arguments: Any) -> None:
        if is_compiling():  # a constant while torch traces
            return
        hook(*arguments)

    return eager


def is_captured() -> bool:
    """Say whether what runs now goes into a CUDA graph."""
    cuda: Any = sys.modules["torch"].cuda
    # Without CUDA, asking raises.
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def layers_of(model: Any, depth: int | None) -> Iterator[tuple[str, Any]]:
    """Yield the modules to time: those `depth` levels down; without a depth, those without children.

    A module with no children above that depth counts as well.
    """
    for name, module in model.named_modules():
        if not name:
            continue
        level = name.count(".") + 1
        is_leaf = next(module.children(), None) is None
        if level == depth or (is_leaf and (depth is None or level < depth)):
            yield name, module


def refusal(model: Any) -> str | None:
    """Return why the model cannot be timed by hooks; None where it can."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return f"a {type(model).__name__} is no torch module"
    for module in model.modules():
        if getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod"):
            return "it is compiled, and compiled code calls no hooks"
        if isinstance(module, torch.jit.ScriptModule):
            return "it is a script module, which takes no hooks"
    return None


def time_layers(model: Any, *, every: int = EVERY, depth: int | None = None) -> LayerTimes:
    """Give every layer of an eager PyTorch model its own span in one of `every` requests.

    A span "layer NAME" has the host's time and, on a GPU, `gpu.time_ms`. A model that is compiled is refused,
    which is logged once; what is compiled or captured later is not timed.

    Args:
        model: the module that the service calls.
        every: one request in this many, chosen by its trace id; 1 is every request.
        depth: levels below the model to time; without it, the modules that have no children.

    Returns the hooks, with `stop()` and `names`, also as a context manager.

    """
    layers: list[tuple[str, Any]] = []
    one_in = EVERY
    with _guard.guard("layers"):
        one_in = max(1, int(every))
        reason = refusal(model)
        if reason is not None:
            _guard.report("layers:refused", f"Layers of a {type(model).__name__} are not timed: {reason}")
        else:
            layers = list(layers_of(model, depth))
    if len(layers) > MAX_LAYERS:
        _guard.report("layers", f"Of {len(layers)} layers {MAX_LAYERS} are timed: pass a smaller depth")
    return LayerTimes(model, layers[:MAX_LAYERS], one_in)
