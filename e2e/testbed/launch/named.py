"""
Run a Python program as if on a host of another name, so that two replicas on one machine can tell each other apart.

`python -m testbed.launch.named HOST PROGRAM ARGUMENTS...`
"""

import socket
import sys

from testbed.launch import run


def main() -> None:
    """Set the name, and run the program."""
    _, host, *program = sys.argv
    socket.gethostname = lambda: host
    run(*program)


if __name__ == "__main__":
    main()
