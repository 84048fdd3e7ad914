"""A FastAPI service with the stages of an inference request, a dependency, and attributes worth filtering by.

Run it: uvicorn examples.fastapi_service:app, then: curl -d 'some words' http://127.0.0.1:8000/predict
"""

import asyncio
import hashlib

from fastapi import FastAPI, Request

import tailscope

tailscope.init(service="classifier")
app = FastAPI()

LABELS = ("fish", "bird", "insect")


@tailscope.stage("auth")
async def authenticate(key: str) -> str:
    """Ask the accounts store who calls."""
    with tailscope.dependency("GET account", peer="accounts"):
        await asyncio.sleep(0.002)
    return key or "anonymous"


@tailscope.stage("preprocess")
def tokenise(text: str) -> list[str]:
    """Split the text into words."""
    return text.lower().split()


@tailscope.stage("inference")
def classify(words: list[str]) -> str:
    """Return a label; a hash is this example's model."""
    digest = hashlib.sha256(" ".join(words).encode()).digest()
    return LABELS[digest[0] % len(LABELS)]


@app.post("/predict")
async def predict(request: Request) -> dict[str, str]:
    """Answer one request."""
    with tailscope.request("predict") as span:
        span.set("tenant", await authenticate(request.headers.get("x-key", "")))
        words = tokenise((await request.body()).decode())
        span.set("input.words", len(words))
        return {"label": classify(words)}
