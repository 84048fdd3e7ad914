"""A LitServe service with every request traced: `python litserve_service.py [--batched] [--port 8000]`."""

from __future__ import annotations

import argparse
import time
from typing import Any

import litserve

import tailscope
from tailscope.integrations import litserve as integration


class Doubler(litserve.LitAPI):
    """Doubles a number, slowly; a negative one is an error."""

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe passes it by name
        """Load the model: a `model.load` span."""
        time.sleep(0.02)

    def decode_request(self, request):  # type: ignore[no-untyped-def] # LitServe reads the annotation
        """Return the number: `preprocess`."""
        time.sleep(0.01)
        return request["row"]

    def predict(self, x: Any) -> Any:
        """Double it, or each of a batch: `inference`."""
        with tailscope.stage("inference.forward"):
            time.sleep(0.03)
        rows = list(x) if isinstance(x, (list, tuple)) else [x]
        if min(rows) < 0:
            raise ValueError("a negative row")
        doubled = [row * 2 for row in rows]
        return doubled if isinstance(x, (list, tuple)) else doubled[0]

    def encode_response(self, output: Any) -> Any:
        """Return the answer: `postprocess`."""
        time.sleep(0.005)
        return {"row": output}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batched", action="store_true")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()

    tailscope.init()  # name and collector come from TAILSCOPE_SERVICE and TAILSCOPE_ENDPOINT
    integration.instrument()  # before the server is made
    batching = {"max_batch_size": 4, "batch_timeout": 0.1} if arguments.batched else {}
    server = litserve.LitServer(Doubler(**batching), accelerator="cpu", timeout=30)
    server.run(port=arguments.port, generate_client_file=False, log_level="error")


if __name__ == "__main__":
    main()
