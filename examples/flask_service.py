"""A Flask service that answers at once and as a stream.

Run it: flask --app examples.flask_service run, then: curl -N http://127.0.0.1:5000/chat/hello%20world
"""

from collections.abc import Iterator

from flask import Flask, Response

import tailscope
from tailscope import integrations

tailscope.init(service="chat")
integrations.instrument()
app = Flask(__name__)


@tailscope.stage("inference")
def tokens(prompt: str) -> Iterator[str]:
    """Give the answer word by word; this example's model repeats the question."""
    for word in prompt.split():
        with tailscope.stage("inference.decode"):
            yield f"data: {word}\n\n"


@app.get("/length/<text>")
def length(text: str) -> dict[str, int]:
    """Answer at once."""
    with tailscope.stage("preprocess"):
        words = text.split()
    return {"words": len(words)}


@app.get("/chat/<prompt>")
def chat(prompt: str) -> Response:
    """Answer with server-sent events; the request ends with the last one."""
    return Response(tokens(prompt), mimetype="text/event-stream")
