"""
Prefill and decode in two processes: one makes the cache, and the other opens it by CUDA IPC.
"""

import ctypes
import json
import subprocess
import sys
from ctypes import byref, c_size_t, c_uint64

from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from client import say as tell
from steps import limited, say

CACHE_MIB = 600


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


def decode(text: str) -> None:
    """Open the cache, copy from it, and allocate beside it."""
    cuda = Cuda()
    lib, pointer = cuda.library, c_uint64()
    free = cuda.visible()[0]
    seen = [["open", lib.cuIpcOpenMemHandle_v2(byref(pointer), Handle.from_buffer_copy(bytes.fromhex(text)), 1)]]
    seen.append(["the opened cache costs nothing again", free - cuda.visible()[0]])
    seen.append(["own activations", cuda.allocate(200 * MIB)[0]])
    seen.append(["copy of a block", lib.cuMemcpyDtoD_v2(pointer, c_uint64(pointer.value + MIB), c_size_t(MIB))])
    seen.append(["close", lib.cuIpcCloseMemHandle(pointer)])
    tell(seen)


def prefill() -> None:
    """Make the cache, and let the other process open it."""
    cuda = Cuda()
    result, cache = cuda.allocate(CACHE_MIB * MIB)
    handle = Handle()
    say("cache", [result, cuda.library.cuIpcGetMemHandle(byref(handle), c_uint64(cache))])
    command = [sys.executable, __file__, bytes(handle).hex()]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    for name, value in json.loads(done.stdout):
        say(f"decode: {name}", value)
    limited("free memory of both, MiB", cuda.visible()[0])
    say("end of the cache", cuda.free(cache))


if len(sys.argv) > 1:
    decode(sys.argv[1])
else:
    prefill()
