"""
Free ports of the loopback.
"""

import itertools
import os
import socket

_ports = itertools.count(20_000 + os.getpid() * 509 % 10_000)
"""Processes of neighbouring pids, as a test runner's, begin far apart."""
_claims: list[socket.socket] = []
"""An abstract Unix socket for each port that this process took. The kernel frees them when it ends."""


def free_port() -> int:
    """Return a port without a listener, below the ports of clients. No other process gets it until this one ends."""
    while True:
        port = next(_ports)
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0hami-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
