"""
The part of the CUDA driver API that the workloads call, through ctypes.

Source: https://docs.nvidia.com/cuda/cuda-driver-api/
"""

import ctypes
import uuid

MIB = 2**20


class CudaError(Exception):
    """A driver call failed. `name` is the name of the driver's error."""

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{call}: {name}")
        self.name = name


class Driver:
    """`libcuda.so.1`, initialised. Each method raises CudaError if the driver call fails."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)

    def _call(self, function: str, *arguments: object, shown: str = "") -> None:
        status = getattr(self._library, function)(*arguments)
        if status != 0:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(name))
            raise CudaError(shown or function, (name.value or b"CUDA_ERROR_UNKNOWN").decode())

    def device_count(self) -> int:
        """Return how many devices are visible."""
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def use(self, ordinal: int) -> None:
        """Make the primary context of a device current."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def uuid(self, ordinal: int) -> str:
        """Return the UUID of a device, as NVML spells it."""
        found = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", ctypes.byref(found), ordinal)
        return f"GPU-{uuid.UUID(bytes=bytes(found))}"

    def total_mib(self) -> int:
        """Return the size of the current device as the driver reports it."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value // MIB

    def allocate(self, mib: int) -> int:
        """Allocate *mib* MiB on the current device, and return the address."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib * MIB), shown=f"cuMemAlloc({mib} MiB)")
        return address.value

    def kernel(self, name: str) -> ctypes.c_void_p:
        """Return a kernel of the current context's module."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), b"\0")
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(self, kernel: ctypes.c_void_p) -> None:
        """Run a kernel of one thread, and wait for it."""
        self._call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        self._call("cuCtxSynchronize")
