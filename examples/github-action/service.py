"""A service in miniature: what a request does, with its stages."""

from __future__ import annotations

import time

import tailscope

MODEL_MS = 5


def model(words: list[str]) -> str:
    """Stand for what takes the time."""
    time.sleep(MODEL_MS / 1000)
    return " ".join(words)


@tailscope.request
def predict(text: str) -> str:
    """Answer one request."""
    with tailscope.stage("preprocess"):
        words = text.lower().split()
    with tailscope.stage("inference"):
        return model(words)
