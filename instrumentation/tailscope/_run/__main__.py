"""`python -m tailscope._run -- COMMAND...` is `tailscope run -- COMMAND...`."""

from __future__ import annotations

import sys

from tailscope._run.command import main

sys.exit(main(sys.argv[1:]))
