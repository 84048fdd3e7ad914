"""`python -m tailscope`, for machines where the console script is not on PATH."""

import sys

from tailscope._cli import main

sys.exit(main())
