"""Requests of language models: what each spent on waiting, prefill and decoding, and that by token.

Owns the normalisation: a long prompt takes longer to prefill, a long answer longer to decode, so that only
what is left per token compares one request with another. Reads requests and ledger, never spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._traces import Traces

PARTS: Final = {"queue_ms": "queue", "prefill_ms": "inference.prefill", "decode_ms": "inference.decode"}
"""Columns, and the stage (with its sub-stages) whose time each holds."""

COLUMNS: Final = (
    *("trace_id", "service", "operation", "model", "input_tokens", "output_tokens", "duration_ms"),
    *("ttft_ms", "tpot_ms"),
)


def llm_requests(traces: Traces) -> pl.DataFrame:
    """Return a row per request that tells of tokens, its first token, prefill or decoding, in order of start.

    Columns: those of COLUMNS as the requests have them; queue_ms, prefill_ms and decode_ms, which are ledger
    time, what the request waited for (null where nothing tells of it); prefill_ms_per_1k_input_tokens and
    decode_ms_per_output_token, which are those by token (null without tokens). The first output token is the
    prefill's, so decoding is divided by one token less.
    """
    spent = traces.ledger.group_by("trace_id").agg(
        pl.when(_of(stage).any()).then(pl.col("self_ms").filter(_of(stage)).sum()).alias(column)
        for column, stage in PARTS.items()
    )
    frame = traces.requests.select(*COLUMNS).join(spent, on="trace_id", how="left", maintain_order="left")
    signs = ("input_tokens", "output_tokens", "ttft_ms", "tpot_ms", "prefill_ms", "decode_ms")
    frame = frame.filter(pl.any_horizontal(pl.col(name).is_not_null() for name in signs))
    prompt, answer = pl.col("input_tokens"), pl.col("output_tokens") - 1
    return frame.with_columns(
        prefill_ms_per_1k_input_tokens=pl.when(prompt > 0).then(pl.col("prefill_ms") * 1000 / prompt),
        decode_ms_per_output_token=pl.when(answer > 0).then(pl.col("decode_ms") / answer),
    )


def _of(stage: str) -> pl.Expr:
    return (pl.col("stage") == stage) | pl.col("stage").str.starts_with(f"{stage}.")
