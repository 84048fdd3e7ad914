"""The CUDA driver that the host process has already loaded, for the two questions no library answers.

Owns two calls by ctypes. Never loads or initialises the driver: without one, both answers are no.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
SUCCESS: Final = 0
CAPTURE_MODE_RELAXED: Final = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: calls of this thread cannot invalidate a capture on another."""


def loaded_driver() -> Any:
    """Return the driver library if the process has it loaded, else None."""
    only_if_loaded = getattr(os, "RTLD_NOLOAD", None)
    if only_if_loaded is None:
        return None
    try:
        return ctypes.CDLL(LIBRARY, mode=only_if_loaded | os.RTLD_NOW)
    except OSError:
        return None


def has_context() -> bool:
    """Say whether the calling thread has a CUDA context; a driver not initialised says no."""
    driver = loaded_driver()
    if driver is None:
        return False
    context = ctypes.c_void_p()
    return driver.cuCtxGetCurrent(ctypes.byref(context)) == SUCCESS and bool(context.value)


def relax_capture() -> bool:
    """Let the calling thread query events while other threads capture graphs; False where it cannot.

    In CUDA's default mode, a call that may be unsafe, from any thread, breaks a capture under way. In this
    mode only a call on something that is itself being captured does, and we touch no event of a capture.
    """
    driver = loaded_driver()
    if driver is None:
        return False
    mode = ctypes.c_int(CAPTURE_MODE_RELAXED)
    return bool(driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == SUCCESS)
