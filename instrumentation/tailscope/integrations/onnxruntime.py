"""ONNX Runtime: a session's run inside a request is an `inference` stage, its creation a `model.load`.

Owns the replacement of the `run` methods and of `InferenceSession.__init__`. Never reads a tensor, only its
shape and type, and records no run outside of a request: a warm-up would be a trace of its own.
"""

# pyright: reportPrivateUsage=false
# An asynchronous run starts in one thread and ends in another, which is not an operation of `with`.

from __future__ import annotations

import functools
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._current import get_current
from tailscope._stage import stage
from tailscope.conventions import COLD_START, MODEL_LOAD_SPAN, MODEL_VERSION
from tailscope.integrations._model_calls import Inputs, inside_request
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope._stage import Stage

    Method = Callable[..., Any]

PACKAGE: Final = "onnxruntime"
PATCHES: Final = Patches(PACKAGE)

FACTS: Final = "_tailscope_facts"
"""Attribute of a session that keeps what is true of all its runs."""

NO_VERSION: Final = (0, (1 << 63) - 1)
"""What ONNX Runtime gives for a model without a version."""


def instrument() -> None:
    """Record the runs of every session, also of those that exist already."""
    with _guard.guard(PACKAGE):
        session = import_module(PACKAGE).InferenceSession
        PATCHES.replace(session, "__init__", wrap_load)
        for name, feed in (("run", 1), ("run_with_ort_values", 1), ("run_with_iobinding", None)):
            PATCHES.replace(session, name, functools.partial(wrap_run, feed=feed))
        PATCHES.replace(session, "run_async", wrap_run_async)


def uninstrument() -> None:
    """Record no further runs."""
    PATCHES.restore()


class Facts:
    """What is true of all runs of one session."""

    __slots__ = ("attributes", "inputs", "ran")

    def __init__(self, session: Any) -> None:
        meta = session.get_modelmeta()
        path = getattr(session, "_model_path", None)
        self.ran = False
        self.inputs = Inputs()
        self.attributes: dict[str, Any] = {
            "model.name": Path(path).stem if path else meta.graph_name,
            # A text: a list would cost ten times as much to encode, with every run.
            "onnxruntime.providers": ", ".join(session.get_providers()),
        }
        if meta.version not in NO_VERSION:
            self.attributes[MODEL_VERSION] = str(meta.version)


def facts_of(session: Any) -> Facts:
    """Return the session's facts, gathered at its first use."""
    known: Facts | None = getattr(session, FACTS, None)
    if known is None:
        known = Facts(session)
        setattr(session, FACTS, known)
    return known


def wrap_load(load: Method) -> Method:
    """Return `__init__` inside a `model.load` span."""

    @functools.wraps(load)
    def call(session: Any, *args: Any, **kwargs: Any) -> None:
        with stage(MODEL_LOAD_SPAN) as span:
            load(session, *args, **kwargs)
            with _guard.guard(PACKAGE):
                for key, value in facts_of(session).attributes.items():
                    span.set(key, value)

    return call


def wrap_run(run: Method, *, feed: int | None) -> Method:
    """Return a `run` method inside an `inference` stage; `feed` is the position of its inputs."""

    @functools.wraps(run)
    def call(session: Any, *args: Any, **kwargs: Any) -> Any:
        if not inside_request():
            return run(session, *args, **kwargs)
        with opened(session, feed_of(args, kwargs, feed)):
            return run(session, *args, **kwargs)

    return call


def wrap_run_async(run_async: Method) -> Method:
    """Return `run_async` with a stage that ends when the callback is called, in ONNX Runtime's thread."""

    @functools.wraps(run_async)
    def call(
        session: Any, output_names: Any, input_feed: Any, callback: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if not inside_request():
            return run_async(session, output_names, input_feed, callback, *args, **kwargs)
        span = opened(session, input_feed)
        span._start(get_current())

        def done(results: Any, user_data: Any, error: str) -> Any:
            span._finish(RuntimeError(error) if error else None)
            return callback(results, user_data, error)

        try:
            return run_async(session, output_names, input_feed, done, *args, **kwargs)
        except BaseException as error:
            span._finish(error)
            raise

    return call


def feed_of(args: tuple[Any, ...], kwargs: dict[str, Any], position: int | None) -> Any:
    """Return the inputs of a run; None where the method takes a binding."""
    if position is None:
        return None
    if len(args) > position:
        return args[position]
    return kwargs.get("input_feed", kwargs.get("input_dict_ort_values"))


def opened(session: Any, feed: Any) -> Stage:
    """Return the stage of one run, not yet started."""
    attributes: dict[str, Any] = {}
    try:  # not a guard, which costs 1.5 us
        facts = facts_of(session)
        attributes = facts.attributes
        if feed:
            attributes = {**attributes, **facts.inputs.describe(*values_of(feed))}
        if not facts.ran:
            facts.ran = True
            attributes = {**attributes, COLD_START: True}
    except Exception as error:  # noqa: BLE001 - inputs are whatever the service passes
        _guard.report("onnxruntime:inputs", f"The inputs of a run could not be described: {error!r}")
    return stage("inference", attributes=attributes)


def values_of(feed: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
    """Return what has the shapes and types of the inputs, and their names."""
    values = [OrtInput(value) if hasattr(value, "data_type") else value for value in feed.values()]
    return values, list(feed)


class OrtInput:
    """Shape and type of an OrtValue, which has methods where arrays have attributes."""

    __slots__ = ("dtype", "shape")

    def __init__(self, value: Any) -> None:
        self.shape = tuple(value.shape())
        self.dtype: str = value.data_type()
