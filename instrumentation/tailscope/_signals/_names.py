"""Keys that host signals write on a request beside those of the public contract (`tailscope.conventions`).

Owns names alone. Measured values carry their unit in the name; a key that is absent means zero or not known.
"""

from __future__ import annotations

from typing import Final

CPU_TIME_MS: Final = "cpu.time_ms"
"""CPU time of the thread while the request ran on it; not for event loops, whose thread serves many."""

CPU_INVOLUNTARY_SWITCHES: Final = "cpu.involuntary_switches"
"""How often the kernel took the CPU from the request's thread for another one."""

THREADPOOL_WAITING: Final = "threadpool.waiting"
"""Most calls seen waiting for a worker thread of the event loop's pool while the request was in flight."""

LOOP_BLOCKED_EVENT: Final = "eventloop.blocked"
"""Something kept the event loop from running; `code.*` names it."""

JIT_COMPILE_MS: Final = "jit.compile_ms"
JIT_TRIGGER: Final = "jit.trigger"

CODE_FUNCTION: Final = "code.function.name"
CODE_FILE: Final = "code.file.path"
CODE_LINE: Final = "code.line.number"
CODE_STACK: Final = "code.stacktrace"
