"""
Free ports of the loopback.
"""

import itertools
import os
import socket
from contextlib import suppress

_ports = itertools.count(20_000 + os.getpid() * 509 % 10_000)
"""Processes of neighbouring pids, as a test runner's, begin far apart: a port is free until its program listens."""


def free_port() -> int:
    """Return a port of the loopback without a listener, below the ports that the kernel gives to clients."""
    while True:
        port = next(_ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
