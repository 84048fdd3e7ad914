"""A gRPC server and a client that calls it; both sides of a call are one trace.

Run it: python examples/grpc_service.py
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

import tailscope
from tailscope import integrations

tailscope.init(service="upper")
integrations.instrument()


def upper(text: bytes, _context: grpc.ServicerContext) -> bytes:
    """Answer one call."""
    with tailscope.stage("inference"):
        return text.upper()


def serve(pool: ThreadPoolExecutor) -> tuple[Any, int]:
    """Start the server on a free port; without generated code, to fit one file."""
    server = grpc.server(pool)
    methods = {"Shout": grpc.unary_unary_rpc_method_handler(upper)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("example.Upper", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def main() -> None:
    """Serve and call once."""
    with ThreadPoolExecutor(4) as pool:
        server, port = serve(pool)
        with tailscope.request("ask"), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            shout: Any = channel.unary_unary("/example.Upper/Shout")
            print(shout(b"hello", timeout=5).decode())
        server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
