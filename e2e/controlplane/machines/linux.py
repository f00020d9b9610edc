"""
System calls that Python lacks. Each raises OSError like the functions of `os`.

Owns the numbers of flags. Must never know a machine or a cluster.
"""

import ctypes
import os
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20

_MNT_DETACH = 2
_RB_POWER_OFF = 0x4321FEDC
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_FINIT_MODULE = {"x86_64": 313, "aarch64": 273}
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process to new namespaces by *flags*. With CLONE_NEWPID only the next child moves."""
    _check(_libc.unshare(flags), "unshare")


def join_network(pid: int) -> None:
    """Move this thread and its later children to the network of process *pid*."""
    with Path(f"/proc/{pid}/ns/net").open("rb") as network:
        _check(_libc.setns(network.fileno(), CLONE_NEWNET), "setns")


def mount(source: str | Path, target: str | Path, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount *source* at *target*. Empty *kind* and *options* mean none."""
    arguments = [os.fsencode(text) or None for text in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {kind or 'bind'}", target)


def load_module(file: Path) -> None:
    """Load a module of the kernel, whose dependencies are loaded."""
    with file.open("rb") as module:
        _check(_libc.syscall(_FINIT_MODULE[os.uname().machine], module.fileno(), b"", 0), "finit_module", file)


def power_off() -> None:
    """End the kernel without a sync. Never returns."""
    _check(_libc.reboot(_RB_POWER_OFF), "reboot")


def move_root(place: Path) -> None:
    """
    Make the mount at *place* the root of this mount namespace, and unmount the old root.

    Source: pivot_root(2), "pivot_root(".", ".")".
    """
    os.chdir(place)
    _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root", place)
    _check(_libc.umount2(b".", _MNT_DETACH), "umount", "the old root")
    os.chdir("/")


def _check(result: int, call: str, path: str | Path = "") -> None:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", str(path) or None)
