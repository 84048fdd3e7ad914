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
    Field("version", (MODEL_VERSION,)),
    Field("ttft_ms", ("tailscope.ttft_ms", "ttft_ms")),
    Field("ttft_ms", ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token"), 1e3),
    Field("tpot_ms", ("tailscope.tpot_ms", "tpot_ms")),
    Field("tpot_ms", ("gen_ai.latency.time_per_output_token",), 1e3),
    Field("input_tokens", ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")),
    Field("output_tokens", ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")),
    Field("batch_size", (BATCH_SIZE,)),
    Field("cold_start", (COLD_START,)),
)
"""The entry span's value wins over one from below, an early span's over a late one's, a key over the next."""

REQUEST_KEYS: Final = tuple(key for field in FIELDS for key in field.keys)
COLUMNS: Final = tuple(dict.fromkeys(field.column for field in FIELDS))
"""The columns that attributes fill."""

COLUMN_OF: Final = {key: field.column for field in FIELDS for key in field.keys}
SCALE_OF: Final = {key: field.scale for field in FIELDS for key in field.keys}
