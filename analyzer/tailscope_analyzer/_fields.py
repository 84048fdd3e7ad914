"""Which attributes say what about a request.

Owns the names under which instrumentations, ours and others', send what the view `requests` shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailscope.conventions import BATCH_SIZE, COLD_START, MODEL_VERSION


@dataclass(frozen=True, slots=True)
class Field:
    """Say which attributes fill a column, best first, and what to multiply a number by."""

    column: str
    keys: tuple[str, ...]
    scale: float = 1.0


FIELDS: Final = (
    Field("http_status", ("http.response.status_code", "http.status_code")),
    Field("model", ("gen_ai.request.model", "gen_ai.response.model", "model.name")),
    Field("model", ("llm.model_name", "llm.request.model", "triton.model_name", "model.id")),
    Field("version", (MODEL_VERSION, "triton.model_version")),
    Field("ttft_ms", ("tailscope.ttft_ms", "ttft_ms", "llm_d.pd_proxy.true_ttft_ms")),
    Field("ttft_ms", ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token"), 1e3),
    Field("tpot_ms", ("tailscope.tpot_ms", "tpot_ms")),
    Field("tpot_ms", ("gen_ai.latency.time_per_output_token",), 1e3),
    # Of TGI, as text with a unit: a plain number under so common a name says nothing.
    Field("tpot_ms", ("time_per_token",), float("nan")),
    Field("input_tokens", ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")),
    Field("input_tokens", ("llm.token_count.prompt", "llm.usage.prompt_tokens", "input_tokens")),
    Field("output_tokens", ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")),
    Field("output_tokens", ("llm.token_count.completion", "llm.usage.completion_tokens", "output_tokens")),
    Field("batch_size", (BATCH_SIZE,)),
    Field("cold_start", (COLD_START,)),
    Field("decode_ms", ("gen_ai.latency.time_in_model_decode",), 1e3),
    Field("decode_ms", ("llm_d.pd_proxy.decode_duration_ms",)),
)
"""The entry span's value wins over one from below, an early span's over a late one's, a key over the next."""

REQUEST_KEYS: Final = tuple(key for field in FIELDS for key in field.keys)
COLUMNS: Final = tuple(dict.fromkeys(field.column for field in FIELDS))
"""The columns that attributes fill; `decode_ms` is read for the time per output token and not shown."""

MILLISECONDS: Final = frozenset({"ttft_ms", "tpot_ms", "decode_ms"})
"""The columns whose text may carry a unit of its own."""

COLUMN_OF: Final = {key: field.column for field in FIELDS for key in field.keys}
SCALE_OF: Final = {key: field.scale for field in FIELDS for key in field.keys}
