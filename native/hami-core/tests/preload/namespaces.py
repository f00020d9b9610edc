"""
What test programs use to leave their namespaces, without a privilege where the kernel lets them.
"""

import ctypes
import os
from pathlib import Path

__all__ = [
    "cover_with_nothing",
    "die_at_system_calls",
    "enter_namespaces",
    "fork_into_pid_namespace",
    "mount_small_disk",
    "refuse_system_calls",
]

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


def cover_with_nothing(folder: str) -> None:
    """Mount an empty disk over a folder, for this process and its children."""
    mount_small_disk(folder, "4k")


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("first", ctypes.POINTER(_Instruction)))


_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _SECOND_ARGUMENT = 0, 24
"""Places in what a filter sees of a call: the number, and the lower half of an argument, with the upper one behind."""
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def refuse_system_calls(calls: list[int | tuple[int, int]], error: int) -> None:
    """
    Let the kernel refuse system calls of this process and its children with an error, as a seccomp profile does.

    A call is a number, or a number and the second argument with which it is refused.
    """
    _filter_system_calls(calls, _ERRNO | error)


def die_at_system_calls(calls: list[int | tuple[int, int]]) -> None:
    """Let the kernel end this process (SIGSYS) at its next such call, as `refuse_system_calls` describes them."""
    _filter_system_calls(calls, _KILL_PROCESS)


def _filter_system_calls(calls: list[int | tuple[int, int]], verdict: int) -> None:
    """Install a filter. Source: linux/filter.h, linux/seccomp.h, linux/prctl.h."""
    code = [(_LOAD, 0, 0, _NUMBER)]
    for call in calls:
        number, argument = call if isinstance(call, tuple) else (call, None)
        refusal = [(_RETURN, 0, 0, verdict)]
        if argument is not None:
            lower = [(_LOAD, 0, 0, _SECOND_ARGUMENT), (_IF_EQUAL, 0, 3, argument)]
            upper = [(_LOAD, 0, 0, _SECOND_ARGUMENT + 4), (_IF_EQUAL, 0, 1, 0)]
            refusal = [*lower, *upper, *refusal, (_LOAD, 0, 0, _NUMBER)]
        code += [(_IF_EQUAL, 0, len(refusal), number), *refusal]
    code.append((_RETURN, 0, 0, _ALLOW))
    instructions = (_Instruction * len(code))(*(_Instruction(*one) for one in code))
    _check(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check(_libc.prctl(_SECCOMP, _FILTER, ctypes.byref(_Program(len(code), instructions)), 0, 0))
