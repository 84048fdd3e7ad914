"""Which Host headers are answered: the guard of a port without tokens against pages in a browser.

A page can give its own name the address 127.0.0.1 once it is loaded (DNS rebinding); its browser then takes
our answers for the page's own. The name in Host gives it away. Owns the names; never resolves one.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Hosts:
    """The names under which a collector may be asked.

    Addresses and `localhost` always are: nobody can rebind those. So is the name that it was bound to.
    """

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in (bound, *allowed)} - {""}

    def allows(self, header: str) -> bool:
        """Whether a Host header, with or without a port, names this collector."""
        name = host_name(header)
        if name in self._names or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def host_name(header: str) -> str:
    """Return the host of a Host header or of an origin's `host:port`, without port, brackets and last dot."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")


def is_loopback(host: str) -> bool:
    """Whether a server that binds to this host is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
