"""PyTorch: calls of a module that you name are `inference` stages, loading a model is a `model.load` span.

Owns the class that a wrapped module gets, which adds one method to the module's own. Never registers a hook
(a hook on a compiled module recompiles it or is not called) and never touches parameters, buffers or names.
"""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tailscope import _guard
from tailscope._stage import stage
from tailscope.conventions import COLD_START, MODEL_LOAD_SPAN
from tailscope.integrations._model_calls import Inputs, inside_request
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PACKAGE: Final = "torch"
PATCHES: Final = Patches(PACKAGE)
Module = TypeVar("Module")

TRACED: Final = "_tailscope_traced"
"""Attribute of a class of ours: the settings of the module that has it."""

LOADERS: Final = (("torch", "load"), ("torch.jit", "load"), ("torch.export", "load"))


def instrument() -> None:
    """Record every loading of a model; modules whose calls count are named by `instrument_module`."""
    with _guard.guard(PACKAGE):
        for module, name in LOADERS:
            PATCHES.replace(
                import_module(module), name, functools.partial(wrap_load, label=f"{module}.{name}")
            )


def uninstrument() -> None:
    """Record no further loads; modules that were named stay so until `uninstrument_module`."""
    PATCHES.restore()


def wrap_load(load: Callable[..., Any], *, label: str) -> Callable[..., Any]:
    """Return a loading function inside a `model.load` span."""

    @functools.wraps(load)
    def call(*args: Any, **kwargs: Any) -> Any:
        with stage(MODEL_LOAD_SPAN, attributes={"code.function.name": label}):
            return load(*args, **kwargs)

    return call


class Traced:
    """How the calls of one module are recorded."""

    __slots__ = ("attributes", "called", "gpu", "inputs", "name", "original")

    def __init__(self, original: type, name: str, attributes: dict[str, Any], *, gpu: bool) -> None:
        self.original = original
        self.name = name
        self.gpu = gpu
        self.attributes = attributes
        self.called = False
        self.inputs = Inputs()


def instrument_module(
    module: Module,
    name: str = "inference",
    *,
    gpu: bool = True,
    model_name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Module:
    """Make each call of a module inside a request a stage, and return the same module.

    The module gets a class of ours derived from its own, so that state_dict, isinstance, hooks, `compile()`
    and scripted modules work as before. A pickled or copied module is a plain one again. Wrap what you call:
    the result of `torch.compile`, not what went into it.

    Args:
        module: an `nn.Module`, compiled or scripted ones too.
        name: the stage, for example "inference" or "preprocess.encoder".
        gpu: measure the GPU time of the call where there is a GPU.
        model_name: as `model.name`; by default the name of the class.
        attributes: set on every stage.

    """
    with _guard.guard(PACKAGE):
        original = cast("type[Any]", type(module))
        if hasattr(original, TRACED):
            return module
        label = model_name or label_of(module)
        traced = Traced(original, name, {"model.name": label, **(attributes or {})}, gpu=gpu)
        try:
            # Scripted modules and others of the service hand attributes on to what is inside of them.
            object.__setattr__(module, "__class__", derived_class(original, traced))
        except TypeError as error:
            _guard.report("torch:class", f"The calls of a {original.__name__} cannot be recorded: {error}")
    return module


def uninstrument_module(module: Module) -> Module:
    """Give a module its own class back."""
    with _guard.guard(PACKAGE):
        traced: Traced | None = getattr(type(module), TRACED, None)
        if traced is not None:
            object.__setattr__(module, "__class__", traced.original)
    return module


def label_of(module: Any) -> str:
    """Return the class of a model, of the one inside where it is compiled or scripted."""
    inner = getattr(module, "_orig_mod", module)
    return str(getattr(inner, "original_name", None) or type(inner).__name__)


def derived_class(original: Any, traced: Traced) -> type[Any]:
    """Return a class like `original` whose calls are stages."""
    torch = import_module(PACKAGE)
    compiling: Callable[[], bool] = torch.compiler.is_compiling
    reduce_original: Callable[[Any, Any], Any] = original.__reduce_ex__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Inside of torch.compile this is constant, and the stage is no part of the graph.
        if compiling() or not inside_request():
            return original.__call__(self, *args, **kwargs)
        with stage(traced.name, gpu=traced.gpu, attributes=call_attributes(traced, args, kwargs)):
            return original.__call__(self, *args, **kwargs)

    def reduce(self: Any, protocol: Any) -> Any:
        return as_original(reduce_original(self, protocol), self.__class__, original)

    names = {
        "__call__": call,
        "__reduce_ex__": reduce,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        TRACED: traced,
    }
    # type() and not the metaclass: that of scripted modules compiles the class.
    make: Callable[..., type[Any]] = type.__new__
    return make(type(original), original.__name__, (original,), names)


def as_original(reduced: Any, ours: type[Any], original: type[Any]) -> Any:
    """Return what pickle is told with the module's own class in place of ours."""
    if not isinstance(reduced, tuple):
        return reduced
    parts: list[Any] = [*reduced]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    function, args, *rest = parts
    if ours not in args:
        return (function, args, *rest)
    # The usual function insists on the class that the object has; `__new__` takes the one that it is given,
    # and needs no Tailscope where the bytes are read.
    if getattr(function, "__name__", "") == "__newobj__":
        function = original.__new__
    return (function, tuple(original if arg is ours else arg for arg in args), *rest)


def call_attributes(traced: Traced, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of one call."""
    attributes = traced.attributes
    try:  # not a guard, which costs 1.5 us
        attributes = {**attributes, **traced.inputs.describe((*args, *kwargs.values()))}
    except Exception as error:  # noqa: BLE001 - arguments are whatever the service passes
        _guard.report("torch:inputs", f"The inputs of a call could not be described: {error!r}")
    if not traced.called:
        traced.called = True
        attributes = {**attributes, COLD_START: True}
    return attributes
