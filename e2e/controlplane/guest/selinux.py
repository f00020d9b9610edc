"""
SELinux in a guest, enforcing: `python -m controlplane.guest.selinux load POLICY` and `... run CONTEXT PROGRAM ...`.

The kernel of this machine need not have SELinux. Owns the policy, `selinux.conf`. Until it is loaded, the guest's
kernel permits everything, and all processes are of one type. Neighbour: `kernel` runs these commands in the guest.
Source: https://github.com/SELinuxProject/selinux-notebook/blob/main/src/lsm_selinux.md#selinux-filesystem
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from controlplane.guest.kernel import Guest
from controlplane.machines import linux

PACKAGES = {"checkpolicy": "checkpolicy"}
"""Debian's package with the compiler of policies."""
CONTAINER = "system_u:system_r:container_t:s0:c1,c2"
"""A container's context. The runtime chooses the two categories, which no other container has."""
_POLICY = Path(__file__).with_name("selinux.conf")
_FILES = Path("/sys/fs/selinux")
_POLICY_VERSION = "31"
_MODULE = (sys.executable, "-m", "controlplane.guest.selinux")


def enforce(guest: Guest) -> None:
    """Compile the policy on this machine, and let *guest* enforce it. Raises: MachineError."""
    compiled = guest.machine.folder / "policy"
    argv = ["checkpolicy", "-M", "-U", "allow", "-c", _POLICY_VERSION, "-o", str(compiled), str(_POLICY)]
    subprocess.run(argv, check=True, capture_output=True)
    guest.run([*_MODULE, "load", str(compiled)])


def in_container(argv: Sequence[str]) -> list[str]:
    """Return the command that runs *argv* in the guest as a process of a container."""
    return [*_MODULE, "run", CONTAINER, *argv]


def main(command: str, *arguments: str) -> None:
    """Run the command in the guest."""
    if command == "load":
        linux.mount("selinuxfs", _FILES, "selinuxfs")
        (_FILES / "load").write_bytes(Path(arguments[0]).read_bytes())
        (_FILES / "enforce").write_text("1")
    else:
        Path("/proc/self/attr/exec").write_text(arguments[0])  # which the child inherits
        # By a pipe, because a container may not write the file that the output of this process goes to.
        done = subprocess.run(arguments[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        sys.stdout.buffer.write(done.stdout)
        sys.exit(done.returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
