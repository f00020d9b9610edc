"""
OptiX's denoiser in a renderer: questions with one result left out, private tables, and buffers of Vulkan's memory.
"""

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from steps import limited, say

cuda = Cuda()
lib = cuda.library


class Handle(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC of a file descriptor."""

    _fields_ = [("type", c_int), ("file", c_uint64 * 2), ("size", c_uint64), ("flags", c_int), ("rest", c_int * 16)]


total, free = c_size_t(), c_size_t()
say("total alone", lib.cuMemGetInfo_v2(None, byref(total)))
limited("total, MiB", total.value // MIB)
say("free alone", lib.cuMemGetInfo_v2(byref(free), None))
limited("free, MiB", free.value // MIB)
say("neither", lib.cuMemGetInfo_v2(None, None))
table = c_void_p()
say("a private table", lib.cuGetExportTable(byref(table), (c_uint64 * 2)(1, 2)))
memory, buffer = c_void_p(), c_uint64()
say("Vulkan's memory", lib.cuImportExternalMemory(byref(memory), byref(Handle(1, (c_uint64 * 2)(3, 0), 64 * MIB))))
say("a buffer of it", lib.cuExternalMemoryGetMappedBuffer(byref(buffer), memory, (c_uint64 * 16)(0, 16 * MIB)))
say("the buffer is freed", lib.cuMemFree_v2(buffer))
say("and cannot be freed again", lib.cuMemFree_v2(buffer) != 0)
say("the memory is given back", lib.cuDestroyExternalMemory(memory))
