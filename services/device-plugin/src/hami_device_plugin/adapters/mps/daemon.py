"""
Find out whether a control daemon of MPS accepts clients.

Source: https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html
"""

import errno
import socket
from pathlib import Path

CONNECT_SECONDS = 2.0
_OTHER_TYPE = errno.EPROTOTYPE
"""Somebody accepts, and not streams."""


def daemon_problem(pipe: str, shared_memory: str) -> str | None:
    """Return why no client can reach the daemon with the folders *pipe* and *shared_memory*; None if one can."""
    if not Path(shared_memory).is_dir():
        return f"{shared_memory} is no folder"
    return connection_problem(f"{pipe}/control")


def connection_problem(control: str) -> str | None:
    """Return why nobody accepts connections at the socket *control*; None if somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(control)
        except OSError as error:
            if error.errno != _OTHER_TYPE:
                return f"no daemon answers at {control}: {error.strerror or error}"
    return None
