"""
A program of its own: make a context on every GPU, as a client of MPS, and end. Print `UUID ERROR` where that fails.

A server of MPS makes its own context on a GPU for its first client there, and keeps it. From then on a GPU in mode
EXCLUSIVE_PROCESS takes no programs but the server's clients. Argument: the path of libcuda.
Source: https://docs.nvidia.com/deploy/mps/ (EXCLUSIVE_PROCESS), CUDA driver API: cuCtxCreate
"""

import ctypes
import sys
import uuid


def main() -> None:
    """Make the contexts."""
    cuda = ctypes.CDLL(sys.argv[1])
    count = ctypes.c_int()
    _check("cuInit", cuda.cuInit(0))
    _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    for device in range(count.value):
        error = cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, device)
        if error:
            found = (ctypes.c_ubyte * 16)()
            _check("cuDeviceGetUuid", cuda.cuDeviceGetUuid_v2(ctypes.byref(found), device))
            sys.stdout.write(f"GPU-{uuid.UUID(bytes=bytes(found))} {error}\n")


def _check(call: str, error: int) -> None:
    if error:
        sys.exit(f"{call}: CUDA error {error}")


if __name__ == "__main__":
    main()
