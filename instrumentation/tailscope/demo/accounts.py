"""The accounts service: who may call the ranker, looked up in SQLite.

The demo's slow dependency: accounts named `far-...` live on a replica across an ocean, and each look-up waits
for its round trips. A real wait in a real process; the ranker sees it as its own slow auth.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
from fastapi import FastAPI, HTTPException

import tailscope
from tailscope.demo import _listen
from tailscope.demo._arrivals import ACCOUNTS_OF_A_KIND
from tailscope.demo._wire import ACCOUNTS, ACCOUNTS_PORT, FAR_MS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def open_accounts(seed: int) -> sqlite3.Connection:
    """Return a database of `ACCOUNTS_OF_A_KIND` near accounts, which wait 0 ms, and as many far ones."""
    database = sqlite3.connect(":memory:")
    database.execute("create table accounts (key text primary key, tenant text, replica_ms real)")
    near, far = FAR_MS
    waits = near * (far / near) ** np.random.default_rng(seed).random(ACCOUNTS_OF_A_KIND)
    rows = [(f"near-{i}", f"tenant-{i % 17}", 0.0) for i in range(ACCOUNTS_OF_A_KIND)]
    rows += [(f"far-{i}", "harbour", float(waits[i])) for i in range(ACCOUNTS_OF_A_KIND)]
    database.executemany("insert into accounts values (?, ?, ?)", rows)
    return database


def create_app(seed: int) -> FastAPI:
    """Return the service."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        tailscope.shutdown()

    app = FastAPI(lifespan=lifespan)
    database = open_accounts(seed)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/accounts/{key}")
    @tailscope.request("lookup")
    async def lookup(key: str) -> dict[str, str]:
        row = database.execute("select tenant, replica_ms from accounts where key = ?", (key,)).fetchone()
        if row is None:
            raise HTTPException(404, f"no such account: {key}")
        tenant, replica_ms = row
        if replica_ms:
            with tailscope.dependency("GET replica", peer="accounts-replica"):
                await asyncio.sleep(replica_ms / 1e3)
        return {"tenant": tenant}

    # The decorator hands each function to FastAPI; naming them here tells type checkers that they are used.
    _ = (healthz, lookup)
    return app


def main(argv: list[str]) -> int:
    """Run the accounts service until it is told to stop."""
    options = _listen.parser(ACCOUNTS, "The accounts service of the demo.", port=ACCOUNTS_PORT).parse_args(
        argv
    )
    tailscope.init(service=ACCOUNTS, endpoint=options.collector)
    _listen.run(create_app(options.seed), options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
