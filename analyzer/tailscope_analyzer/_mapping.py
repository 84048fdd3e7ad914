"""Which stage of a request a span belongs to, by what it is called and who made it.

Owns the table of known spans; support for another server is another row. Reads no data: the answer depends on
the instrumentation scope, the span's name and kind and an explicit `tailscope.stage` alone, so that a caller
can remember it per distinct combination.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from typing import Final

from tailscope.conventions import INFERENCE_SUBSTAGES, STAGES

CONTRIB_ASGI: Final = "opentelemetry.instrumentation.*"


@dataclass(frozen=True, slots=True)
class Rule:
    """Map spans whose scope and name match these patterns (`*` is any text) to a stage."""

    operation: str
    stage: str | None
    """None: the span is known and is no stage of its own; no guess by its words may follow."""
    scope: str = "*"
    background: bool = False
    """Runs after the response, so that no request ever waits for it."""


RULES: Final = (
    Rule("fastapi.dependencies", "preprocess", scope="fastapi"),
    Rule("fastapi.endpoint", None, scope="fastapi"),
    Rule("fastapi.serialization", "serialize", scope="fastapi"),
    Rule("fastapi.background_task", None, scope="fastapi", background=True),
    # The contrib middleware wraps `await receive()` and `await send()`: waiting for the peer's bytes.
    Rule("*http receive", "network", scope=CONTRIB_ASGI),
    Rule("*http send", "network", scope=CONTRIB_ASGI),
    Rule("*websocket receive", "network", scope=CONTRIB_ASGI),
    Rule("*websocket send", "network", scope=CONTRIB_ASGI),
    Rule("BackgroundTask *", None, scope=CONTRIB_ASGI, background=True),
    Rule("model.load", "coldstart"),
    Rule("lora.load", "coldstart"),
    Rule("tls.connect", "network"),
    *(Rule(stage, stage) for stage in STAGES),
    *(Rule(f"{stage}.*", f"{stage}.*") for stage in STAGES),
    # `decode` alone is left out: images and tokens are decoded too. `forward` is a word below.
    *(Rule(part, f"inference.{part}") for part in ("prefill", "h2d", "d2h")),
)
"""The first rule that matches decides. A stage that ends in `.*` keeps the span's own sub-stage."""

WORDS: Final = (
    # Words that mean one thing come first, so that `postprocess_transform` is not taken for a transform.
    ("auth", ("auth", "authn", "authz", "authenticat*", "authoriz*", "jwt", "apikey")),
    ("postprocess", ("postproc*", "detokeniz*", "nms")),
    ("preprocess", ("preproc*", "tokeniz*", "decoderequest", "deseriali*")),
    ("queue", ("queue", "enqueue", "batchwait", "schedul*")),
    ("serialize", ("seriali*", "encoderesponse")),
    ("inference", ("predict", "prediction", "infer*", "forward", "generate")),
    ("auth", ("token", "permission*")),
    ("preprocess", ("resize", "transform", "feature*", "parse", "validate", "validation")),
    ("queue", ("wait", "acquire")),
    ("inference", ("model", "execute", "compute")),
    ("postprocess", ("format", "filter")),
    ("serialize", ("json", "dump", "render")),
)
"""Last resort: words of the name, tried in this order. A star matches any ending."""

GUESSED_KINDS: Final = frozenset({"internal", "unspecified", ""})
"""A SERVER or CLIENT span is called after an endpoint, which says nothing about the stage it is."""


def stage_of(*, scope: str, operation: str, kind: str, explicit: str | None) -> str | None:
    """Return the stage of a span, as `inference` or `inference.prefill`, or None when it is no stage.

    Args:
        scope: name of the instrumentation scope that made the span; empty when unknown.
        operation: the span's name.
        kind: one of `conventions.SPAN_KINDS`; empty when unknown.
        explicit: value of the attribute `tailscope.stage`, which wins over everything else.

    """
    if explicit and explicit.strip():
        return _explicit(explicit.strip())
    rule = _rule(scope, operation)
    if rule is not None:
        return operation if rule.stage and rule.stage.endswith(".*") else rule.stage
    # A route or an RPC method says what is asked for, not what is being done.
    return _by_words(operation) if kind in GUESSED_KINDS and "/" not in operation else None


def is_background(*, scope: str, operation: str) -> bool:
    """Tell whether a span runs after the response was sent."""
    rule = _rule(scope, operation)
    return rule is not None and rule.background


def _explicit(stage: str) -> str:
    # A name outside our vocabulary is the user's own stage and stays as written.
    return f"inference.{stage}" if stage in INFERENCE_SUBSTAGES else stage


@lru_cache(maxsize=8192)
def _rule(scope: str, operation: str) -> Rule | None:
    for rule, scope_pattern, name_pattern in _PATTERNS:
        if name_pattern.match(operation) and scope_pattern.match(scope):
            return rule
    return None


@lru_cache(maxsize=8192)
def _by_words(operation: str) -> str | None:
    parts = [word.lower() for word in _WORD.findall(operation)]
    # Neighbours joined: `pre_process` and `batchWait` are written in as many ways as there are styles.
    words = {*parts, *(first + second for first, second in pairwise(parts))}
    for stage, patterns in WORDS:
        for pattern in patterns:
            stem = pattern.removesuffix("*")
            if stem in words or (stem != pattern and any(word.startswith(stem) for word in words)):
                return stage
    return None


_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PATTERNS = [
    (rule, re.compile(translate(rule.scope)), re.compile(translate(rule.operation))) for rule in RULES
]
