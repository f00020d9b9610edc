"""
What test programs use to leave their namespaces, without a privilege where the kernel lets them.
"""

import ctypes
import os
from pathlib import Path

__all__ = ["enter_namespaces", "fork_into_pid_namespace", "mount_small_disk"]

_NEW_MOUNTS, _NEW_USER, _NEW_PIDS = 0x00020000, 0x10000000, 0x20000000
_RECURSIVE_PRIVATE = 0x4000 | 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def enter_namespaces(flags: int) -> None:
    """Enter new namespaces: as root, or as the root of a new user namespace. OSError where the kernel refuses."""
    if os.geteuid() == 0:
        _check(_libc.unshare(flags))
        return
    user, group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_USER | flags))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def mount_small_disk(folder: str, size: str) -> None:
    """Mount a disk of `size` at a folder, for this process and its children."""
    enter_namespaces(_NEW_MOUNTS)
    _check(_libc.mount(None, b"/", None, _RECURSIVE_PRIVATE, None))
    _check(_libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, f"size={size}".encode()))


def fork_into_pid_namespace() -> int:
    """Fork a child that is the first process of a new pid namespace. Returns as `os.fork` does."""
    enter_namespaces(_NEW_PIDS)
    return os.fork()
