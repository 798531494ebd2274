"""A port for the processes of one run to find each other."""

from __future__ import annotations

import hashlib
import socket

from nightlab.errors import LauncherError

__all__ = ["free_port"]

FIRST, COUNT = 20_000, 12_000
"""Below the ports that systems hand out by themselves (from 32768)."""
TRIES = 50


def free_port(run: str) -> int:
    """A free port of this machine, a different one for every run: begun at a place derived from its name.

    Raises LauncherError where none of many is free.
    """
    start = int.from_bytes(hashlib.sha256(run.encode()).digest()[:4], "big")
    for step in range(TRIES):
        port = FIRST + (start + step) % COUNT
        if _is_free(port):
            return port
    raise LauncherError(f"no free port for {run} between {FIRST} and {FIRST + COUNT} (end what holds them)")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
