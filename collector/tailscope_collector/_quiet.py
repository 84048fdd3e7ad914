"""Keeps gRPC from logging what clients send: at its own level the text of a GOAWAY frame comes out on stderr.

Has to be imported before grpc, which reads its level once. A level that the operator set stays.
"""

from __future__ import annotations

import os
from typing import Final

LEVEL: Final = os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
