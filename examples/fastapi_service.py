"""A FastAPI service with the stages of an inference request, a dependency, and attributes worth filtering by.

Run it: uvicorn examples.fastapi_service:app, then: curl -d 'some words' http://127.0.0.1:8000/predict
"""

import asyncio
import hashlib
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Request

import tailscope
from tailscope import integrations

tailscope.init(service="classifier")
integrations.instrument()
app = FastAPI()

LABELS = ("fish", "bird", "insect")


async def authenticate(x_key: Annotated[str, Header()] = "anonymous") -> str:
    """Ask the accounts store who calls; its name makes it the stage `auth`."""
    with tailscope.dependency("GET account", peer="accounts"):
        await asyncio.sleep(0.002)
    return x_key


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
async def predict(request: Request, tenant: Annotated[str, Depends(authenticate)]) -> dict[str, str]:
    """Answer one request."""
    words = tokenise((await request.body()).decode())
    with tailscope.request("predict") as span:  # FastAPI's own span: nothing is added but the attributes
        span.set("tenant", tenant)
        span.set("input.words", len(words))
    return {"label": classify(words)}
