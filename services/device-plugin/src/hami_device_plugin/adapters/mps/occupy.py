"""
A program of its own: look at every GPU as a client of MPS, or take it by a context, and end.

A server of MPS makes its own context on a GPU for its first client there, and keeps it. From then on a GPU in mode
EXCLUSIVE_PROCESS takes no programs but the server's clients. Arguments: the path of libcuda, and `take` or `look`.
Prints `UUID ERROR MULTIPROCESSORS` for each GPU; the error is 0, or why it cannot be taken.
Source: https://docs.nvidia.com/deploy/mps/ (EXCLUSIVE_PROCESS), CUDA driver API: cuCtxCreate
"""

import ctypes
import sys
import uuid

_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""


def main() -> None:
    """Print what each GPU is."""
    cuda, takes = ctypes.CDLL(sys.argv[1]), sys.argv[2] == "take"
    count, found, identity = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    _check("cuInit", cuda.cuInit(0))
    _check("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    for device in range(count.value):
        error = cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, device) if takes else 0
        _check("cuDeviceGetUuid", cuda.cuDeviceGetUuid_v2(ctypes.byref(identity), device))
        _check("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(ctypes.byref(found), _MULTIPROCESSORS, device))
        sys.stdout.write(f"GPU-{uuid.UUID(bytes=bytes(identity))} {error} {found.value}\n")


def _check(call: str, error: int) -> None:
    if error:
        sys.exit(f"{call}: CUDA error {error}")


if __name__ == "__main__":
    main()
