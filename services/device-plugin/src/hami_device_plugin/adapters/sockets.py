"""
Tell the sockets of this process from those of others.

Neighbours: `kubelet` and `dra` serve at sockets, whose files a kubelet or another plugin may replace or remove.
"""

import socket
from contextlib import suppress
from pathlib import Path


def is_served(path: Path) -> bool:
    """Return whether a process listens at the socket *path*."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        probe.connect(str(path))
        return True
    return False


def socket_identity(path: Path) -> int | None:
    """Return a number that differs between two sockets created at *path*; None if there is no socket."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
