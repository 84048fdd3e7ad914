"""What somebody would change: a kind of time, scaled or set; a batcher's limits; servers; a cache.

Owns reading changes as people write them, finding the kinds of time that a name means, and the words for
them. Knows nothing of requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._edges import callee_of
from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools
    from tailscope_analyzer._whatif._cells import Key

TYPICAL: Final = "typical"
NAMES_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class StageChange:
    """Change every piece of one kind of time."""

    target: str
    """A stage, a category, a service, `service stage`, a callee, or a ledger operation."""
    factor: float | None = None
    """Multiply by this; 0 removes it."""
    at_most_ms: float | None = None
    """Cap each piece at so much."""

    @property
    def is_typical(self) -> bool:
        """Whether each piece is reset to what is typical of its kind."""
        return self.factor is None and self.at_most_ms is None

    @property
    def value(self) -> str:
        """The right-hand side, as it is written."""
        if self.factor is not None:
            return f"{self.factor:g}"
        return TYPICAL if self.at_most_ms is None else f"{self.at_most_ms:g}ms"

    def __str__(self) -> str:
        return f"{self.target}={self.value}"


@dataclass(frozen=True, slots=True)
class Changes:
    """Hold what changes at once; every field at its default changes nothing."""

    stages: tuple[StageChange, ...] = ()
    batch_window_ms: float | None = None
    max_batch: int | None = None
    replicas: int = 0
    """Servers that every queue gets in addition."""
    cache_hit_rate: float | None = None
    cached_stage: str | None = None
    """What a hit makes unnecessary; None: what hits have been seen to save."""

    def each(self) -> list[Changes]:
        """Take the changes one by one."""
        alone = [Changes(stages=(change,)) for change in self.stages]
        if self.batch_window_ms is not None:
            alone.append(Changes(batch_window_ms=self.batch_window_ms))
        if self.max_batch is not None:
            alone.append(Changes(max_batch=self.max_batch))
        if self.replicas:
            alone.append(Changes(replicas=self.replicas))
        if self.cache_hit_rate is not None:
            alone.append(Changes(cache_hit_rate=self.cache_hit_rate, cached_stage=self.cached_stage))
        return alone

    @property
    def asks_queues(self) -> bool:
        """Whether this changes how queues are served, and nothing else could show it."""
        return self.batch_window_ms is not None or self.max_batch is not None or self.replicas != 0

    def __str__(self) -> str:
        words = [str(change) for change in self.stages]
        if self.batch_window_ms is not None:
            words.append(f"batch window {self.batch_window_ms:g} ms")
        if self.max_batch is not None:
            words.append(f"batches of at most {self.max_batch}")
        if self.replicas:
            words.append(f"{self.replicas:+d} replica{'s' if self.replicas != 1 else ''}")
        if self.cache_hit_rate is not None:
            what = f" of {self.cached_stage}" if self.cached_stage else ""
            words.append(f"cache hit rate{what} {self.cache_hit_rate:.0%}")
        return ", ".join(words)


def parse_change(text: str) -> StageChange:
    """Read `inference=0.5`, `queue=0`, `postgres=typical` or `auth=3ms`.

    Raises InputError when there is no name, or no value of that kind.
    """
    target, sign, value = text.rpartition("=")
    target, value = target.strip(), value.strip()
    if not sign or not target:
        raise InputError(f"Not a change: {text!r}. Write NAME=FACTOR, such as inference=0.5 or queue=0.")
    return stage_change(target, value)


def stage_change(target: str, value: float | str) -> StageChange:
    """Build a change from a name and a factor, `typical`, or a cap such as `3ms`; raises InputError."""
    if isinstance(value, str) and value.strip().lower() == TYPICAL:
        return StageChange(target)
    text = str(value).strip().lower()
    capped = text.endswith("ms")
    try:
        number = float(text.removesuffix("ms"))
    except ValueError:
        number = float("nan")
    if not (np.isfinite(number) and number >= 0):
        raise InputError(
            f"{target} cannot become {value!r}. Give a factor of 0 or more (0.5 is half), "
            f"'{TYPICAL}', or a cap such as 3ms."
        )
    return StageChange(target, at_most_ms=number) if capped else StageChange(target, factor=number)


def meant(target: str, keys: list[Key]) -> Bools:
    """Choose the keys that a name means; raises InputError, with the names there are, when none is.

    The first reading that matches anything counts: stage (with its sub-stages), category, service, `service
    stage`, callee, operation.
    """
    for reading in (_is_stage, _is_category, _is_service, _is_stage_of_service, _is_callee, _is_operation):
        chosen = np.array([reading(target, key) for key in keys], dtype=bool)
        if chosen.any():
            return chosen
    raise InputError(f"Nothing here is called {target!r}. There is: {', '.join(_names(keys))}.")


def _is_stage(target: str, key: Key) -> bool:
    return key.stage == target or key.stage.startswith(f"{target}.")


def _is_category(target: str, key: Key) -> bool:
    return key.category == target


def _is_service(target: str, key: Key) -> bool:
    return key.service == target


def _is_stage_of_service(target: str, key: Key) -> bool:
    name = f"{key.service} {key.stage}"
    return name == target or name.startswith(f"{target}.")


def _is_callee(target: str, key: Key) -> bool:
    return bool(target) and callee_of(key.service, key.category, key.operation) == target


def _is_operation(target: str, key: Key) -> bool:
    return key.operation == target


def _names(keys: list[Key]) -> list[str]:
    names = dict.fromkeys(
        name
        for group in zip(*((key.stage, key.category, key.service) for key in keys), strict=True)
        for name in group
    )
    shown = list(names)[:NAMES_SHOWN]
    return [*shown, "..."] if len(names) > len(shown) else shown
