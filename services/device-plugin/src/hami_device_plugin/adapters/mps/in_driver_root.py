"""
A program of its own: become a program of the driver, in the driver's root.

Its libraries are those of the driver's root, and not of this container. It is started apart from the service, which has
threads, so that nothing runs between fork and exec. Arguments: the root; a cgroup to move to, or an empty one; the
program and its arguments.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    """Become the program."""
    root, group, *command = sys.argv[1:]
    try:
        if group:
            (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
        if root != "/":
            os.chroot(root)
            os.chdir("/")
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]} cannot be run in {root}: {error.strerror}: {error.filename or group}")


if __name__ == "__main__":
    main()
