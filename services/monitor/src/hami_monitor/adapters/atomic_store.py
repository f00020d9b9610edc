"""
Store one aligned 32-bit integer into mapped memory, atomically, and survive that the memory is gone.

A region file belongs to its container, which may shrink it at any moment; a plain store into a page past the end of the
file would end the process with SIGBUS, and no check before the store can close that window. So the kernel does the
store: FUTEX_WAKE_OP sets a word atomically and answers EFAULT where there is no page. That nobody waits on the word
does not matter.
Source: https://man7.org/linux/man-pages/man2/futex.2.html (FUTEX_WAKE_OP)
"""

import ctypes
import os
import platform

VALUE_MIN, VALUE_MAX = -2048, 2047
"""The operation's argument has twelve bits."""

_SYSCALL_NUMBERS = {"x86_64": 202, "aarch64": 98}
"""Of futex. Source: https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/unistd.h, syscall_64.tbl"""
_WAKE_OP_PRIVATE = 5 | 128
_ARGUMENT_SHIFT = 12
_ARGUMENT_MASK = 0xFFF

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_nobody_waits_here = ctypes.c_int32(0)


def store_int32(address: int, value: int) -> None:
    """
    Store *value* at *address*, which is a multiple of 4 inside a mapping of this process.

    Raises:
        OSError: there is no memory at *address* (EFAULT), as past the end of a file that was shrunk.
        ValueError: *value* is not VALUE_MIN..VALUE_MAX.
    """
    if not VALUE_MIN <= value <= VALUE_MAX:
        raise ValueError(f"value {value} is not in {VALUE_MIN}..{VALUE_MAX}")
    set_value = (value & _ARGUMENT_MASK) << _ARGUMENT_SHIFT
    answer = _libc.syscall(
        ctypes.c_long(_SYSCALL_NUMBERS[platform.machine()]),
        ctypes.byref(_nobody_waits_here),
        ctypes.c_int(_WAKE_OP_PRIVATE),
        ctypes.c_int(0),
        ctypes.c_long(0),
        ctypes.c_void_p(address),
        ctypes.c_uint(set_value),
    )
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
