"""Hugging Face transformers: `generate` is an `inference` stage with prefill and decode, pipelines too.

Owns the replacement of `GenerationMixin.generate` and of a pipeline's three steps. What it adds to a
generation, a logits processor that returns what it is given, changes no token and reads no tensor.
"""

# pyright: reportPrivateUsage=false
# A part of a stage that is over is recorded with times of our own.

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._batch import record
from tailscope._current import get_current
from tailscope._decorate import wrap
from tailscope._local import now
from tailscope._stage import stage
from tailscope.conventions import INPUT_SHAPE
from tailscope.integrations._imports import forget, when_imported
from tailscope.integrations._model_calls import inside_request, shape_text
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    Method = Callable[..., Any]

PACKAGE: Final = "transformers"
PATCHES: Final = Patches(PACKAGE)

GENERATION: Final = "transformers.generation.utils"
PIPELINES: Final = "transformers.pipelines.base"

TTFT: Final = "gen_ai.response.time_to_first_chunk"
"""Seconds until the logits of the first token were there, as the host sees it."""
TPOT_MS: Final = "tailscope.tpot_ms"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"

STEPS: Final = {"preprocess": "preprocess", "forward": "inference", "postprocess": "postprocess"}
"""Methods of a pipeline and their stages."""

MAX_NAMED_ARGUMENTS: Final = 3
"""`logits_processor` is the third positional argument of `generate`, after the inputs and the settings."""


def instrument() -> None:
    """Record every generation and every pipeline, those that exist already too.

    Waits for the parts of the package that do it: a service that only tokenises must not import torch for us.
    """
    when_imported(GENERATION, instrument_generation)
    when_imported(PIPELINES, instrument_pipelines)


def instrument_generation() -> None:
    """Record every generation."""
    PATCHES.replace(import_module(GENERATION).GenerationMixin, "generate", wrap_generate)


def instrument_pipelines() -> None:
    """Record the steps of every pipeline."""
    pipeline = import_module(PIPELINES).Pipeline
    PATCHES.replace(pipeline, "__call__", wrap_pipeline)
    PATCHES.replace(pipeline, "forward", functools.partial(wrap_step, name=STEPS["forward"]))


def uninstrument() -> None:
    """Record no further generations."""
    forget(GENERATION, instrument_generation)
    forget(PIPELINES, instrument_pipelines)
    PATCHES.restore()


class Watch:
    """A logits processor that changes nothing and notes when it was called: once for each token."""

    __slots__ = ("calls", "first_ns", "last_ns")

    def __init__(self) -> None:
        self.calls = 0
        self.first_ns = 0
        self.last_ns = 0

    def __call__(self, input_ids: Any, scores: Any) -> Any:  # noqa: ARG002 - called by position
        """Return the scores as they came."""
        self.last_ns = now()
        if not self.calls:
            self.first_ns = self.last_ns
        self.calls += 1
        return scores


def wrap_generate(generate: Method) -> Method:
    """Return `generate` inside an `inference` stage."""

    @functools.wraps(generate)
    def call(model: Any, *args: Any, **kwargs: Any) -> Any:
        if not inside_request():
            return generate(model, *args, **kwargs)
        watch = Watch()
        with stage("inference", gpu=True) as span:
            began_ns = now()
            with _guard.guard(PACKAGE):
                args, kwargs = watched(watch, args, kwargs)
                span.set("gen_ai.request.model", name_of(model))
            result = generate(model, *args, **kwargs)
            with _guard.guard(PACKAGE):
                for key, value in counts(model, args, kwargs, result).items():
                    span.set(key, value)
                tell(span, watch, began_ns)
        return result

    return call


def watched(
    watch: Watch, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of `generate` with our logits processor after those of the service."""
    processors = import_module("transformers").LogitsProcessorList
    if len(args) >= MAX_NAMED_ARGUMENTS:
        own = args[MAX_NAMED_ARGUMENTS - 1] or ()
        return (
            *args[: MAX_NAMED_ARGUMENTS - 1],
            processors([*own, watch]),
            *args[MAX_NAMED_ARGUMENTS:],
        ), kwargs
    own = kwargs.get("logits_processor") or ()
    return args, {**kwargs, "logits_processor": processors([*own, watch])}


def name_of(model: Any) -> str:
    """Return the name that a model was loaded by, or its class."""
    config = getattr(model, "config", None)
    return str(getattr(config, "_name_or_path", "") or type(model).__name__)


def counts(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    """Return the token counts, padding included: without it, counting would wait for the GPU."""
    prompt: Any = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
    shape: tuple[int, ...] = tuple(getattr(prompt, "shape", ()))
    sequences = getattr(result, "sequences", result)
    rows, length = sequences.shape[0], sequences.shape[-1]
    decoder_only = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    # An encoder's prompt is not repeated in the output, whose first token is the start.
    prompt_length = shape[-1] if decoder_only and len(shape) > 1 else int(not decoder_only)
    found: dict[str, Any] = {OUTPUT_TOKENS: rows * (length - prompt_length)}
    if len(shape) > 1:
        found[INPUT_TOKENS] = shape[0] * shape[-1]
        found[INPUT_SHAPE] = shape_text(shape)
        found["batch.size"] = shape[0]
    return found


def tell(span: Any, watch: Watch, began_ns: int) -> None:
    """Record prefill and decode beneath the stage, and the times of the tokens on it."""
    if not watch.calls:
        return
    ended_ns = now()
    context = get_current()
    span.set(TTFT, (watch.first_ns - began_ns) / 1e9)
    record(context, "inference.prefill", (began_ns, watch.first_ns), {}, [], None)
    if watch.calls > 1:
        span.set(TPOT_MS, (watch.last_ns - watch.first_ns) / 1e6 / (watch.calls - 1))
        record(
            context,
            "inference.decode",
            (watch.first_ns, ended_ns),
            {"decode.steps": watch.calls - 1},
            [],
            None,
        )


def wrap_pipeline(call_pipeline: Method) -> Method:
    """Return a pipeline's call, which first makes stages of the steps of its class."""

    @functools.wraps(call_pipeline)
    def call(pipeline: Any, *args: Any, **kwargs: Any) -> Any:
        with _guard.guard(PACKAGE):
            # Each task's class has its own; the class, so that a pipeline still can be pickled for workers.
            for name in ("preprocess", "postprocess"):
                PATCHES.replace(type(pipeline), name, functools.partial(wrap_step, name=STEPS[name]))
        return call_pipeline(pipeline, *args, **kwargs)

    return call


def wrap_step(step: Method, *, name: str) -> Method:
    """Return one step of a pipeline inside a stage, where there is a request."""
    recorded = wrap(step, lambda: stage(name, gpu=name == STEPS["forward"]))

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (recorded if inside_request() else step)(*args, **kwargs)

    return call
