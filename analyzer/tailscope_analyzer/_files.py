"""Requests of trace files, for a notebook or a comparison.

Owns nothing but the way to whoever can read files: that is the package which registered itself under the
entry points `tailscope.stores`.
"""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, cast

from tailscope.conventions import STORES_GROUP
from tailscope_analyzer._errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer._traces import Traces


def read_files(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Traces:
    """Read the requests of files in any format that `tailscope import` takes.

    Raises SourceError where nothing here can read files, or none of these can be read.
    """
    several = (paths,) if isinstance(paths, str | os.PathLike) else paths
    names = [str(path) for path in several]
    readers = [point for point in entry_points(group=STORES_GROUP) if point.name == "files"]
    if not readers:
        raise SourceError(
            "Nothing here can read trace files. "
            "Install the collector with: pip install 'tailscope[collector]'"
        )
    try:
        reader = readers[0].load()
    except ModuleNotFoundError as error:
        raise SourceError(
            f"Reading files needs {error.name}. Install it with: pip install 'tailscope[collector]'"
        ) from error
    return cast("Traces", reader(names))  # the entry point's contract: read_files
