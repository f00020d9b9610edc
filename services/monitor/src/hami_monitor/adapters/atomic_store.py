"""
Store one aligned 32-bit integer into mapped memory atomically, even if the memory may vanish.

A container may shrink its region file at any moment. A plain store into a page past the end of the file would then end
the process with SIGBUS, and no check before the store can prevent that. So the kernel stores the integer: FUTEX_WAKE_OP
sets a word atomically, and returns EFAULT if there is no page. It needs no waiter on the word.
Source: https://man7.org/linux/man-pages/man2/futex.2.html (FUTEX_WAKE_OP)
"""

import ctypes
import os
import platform

VALUE_MIN, VALUE_MAX = -2048, 2047
"""Range of the operation's argument, which has twelve bits."""

_SYSCALL_NUMBERS = {"x86_64": 202, "aarch64": 98}
"""
Numbers of futex.

Source: https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/unistd.h, syscall_64.tbl
"""
_WAKE_OP_PRIVATE = 5 | 128
_ARGUMENT_SHIFT = 12
_ARGUMENT_MASK = 0xFFF

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_no_waiter = ctypes.c_int32(0)


def store_int32(address: int, value: int) -> None:
    """
    Store *value* at *address*, which is a multiple of 4 inside a mapping of this process.

    Raises:
        OSError: there is no memory at *address* (EFAULT), for example past the end of a shrunk file.
        ValueError: *value* is not VALUE_MIN..VALUE_MAX.
    """
    if not VALUE_MIN <= value <= VALUE_MAX:
        raise ValueError(f"value {value} is not in {VALUE_MIN}..{VALUE_MAX}")
    set_value = (value & _ARGUMENT_MASK) << _ARGUMENT_SHIFT
    answer = _libc.syscall(
        ctypes.c_long(_SYSCALL_NUMBERS[platform.machine()]),
        ctypes.byref(_no_waiter),
        ctypes.c_int(_WAKE_OP_PRIVATE),
        ctypes.c_int(0),
        ctypes.c_long(0),
        ctypes.c_void_p(address),
        ctypes.c_uint(set_value),
    )
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
