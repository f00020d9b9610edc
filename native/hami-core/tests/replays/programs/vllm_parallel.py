"""
Two ranks of vLLM with tensor parallelism, and what NCCL does before them: host memory by its NUMA node, peers, and
memory that is shared by file descriptors.
"""

import json
import socket
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from client import say as tell
from steps import say

ON_DEVICE, ON_HOST_NUMA = 1, 3
FILE_DESCRIPTOR = 1
NO = c_uint64(0)


def physical(lib: Any, location: int, number: int, mib: int = 2) -> tuple[int, c_uint64]:
    """Return the result of cuMemCreate at a location, and the handle."""
    handle = c_uint64()
    properties = (c_uint64 * 4)(FILE_DESCRIPTOR << 32 | 1, number << 32 | location)
    return lib.cuMemCreate(byref(handle), c_size_t(mib * MIB), properties, NO), handle


def mapped(lib: Any, handle: c_uint64, device: int, mib: int = 2) -> tuple[list[int], c_uint64]:
    """Return the results of mapping memory for a device."""
    pointer = c_uint64()
    results = [lib.cuMemAddressReserve(byref(pointer), c_size_t(mib * MIB), NO, NO, NO)]
    results.append(lib.cuMemMap(pointer, c_size_t(mib * MIB), NO, handle, NO))
    access = (c_int * 3)(ON_DEVICE, device, 3)
    return [*results, lib.cuMemSetAccess(pointer, c_size_t(mib * MIB), access, c_size_t(1))], pointer


def rank(number: int, file: int) -> None:
    """Be one rank: make memory, send it to the other, and map what the other sends."""
    cuda, peer = Cuda(number), socket.socket(fileno=file)
    lib, seen = cuda.library, list[list[Any]]()
    seen.append(["host memory by its NUMA node", physical(lib, ON_HOST_NUMA, 0)[0]])
    result, own = physical(lib, ON_DEVICE, number, 64)
    can, shared = c_int(), c_int()
    seen.append(["memory of the rank", [result, *mapped(lib, own, number, 64)[0]]])
    seen.append(["access to the peer", [lib.cuDeviceCanAccessPeer(byref(can), number, 1 - number), can.value]])
    seen.append(["export", lib.cuMemExportToShareableHandle(byref(shared), own, FILE_DESCRIPTOR, NO)])
    socket.send_fds(peer, [b"x"], [shared.value])
    received = socket.recv_fds(peer, 1, 1)[1][0]
    other = c_uint64()
    seen.append(["import", lib.cuMemImportFromShareableHandle(byref(other), c_void_p(received), FILE_DESCRIPTOR)])
    results, pointer = mapped(lib, other, number, 64)
    seen.append(["memory of the peer", results])
    seen.append(["all-reduce", [lib.cuMemsetD8_v2(pointer, 1, c_size_t(MIB)), lib.cuCtxSynchronize()]])
    seen.append(["end", [lib.cuMemUnmap(pointer, c_size_t(64 * MIB)), lib.cuMemRelease(other), lib.cuMemRelease(own)]])
    tell(seen)


def both() -> None:
    """Run both ranks, and report what each saw."""
    ends = socket.socketpair()
    commands = [[sys.executable, __file__, str(number), str(end.fileno())] for number, end in enumerate(ends)]
    ranks = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[end.fileno()])
        for command, end in zip(commands, ends, strict=True)
    ]
    for number, one in enumerate(ranks):
        for name, value in json.loads(one.communicate(timeout=60)[0]):
            say(f"rank {number}: {name}", value)


if len(sys.argv) > 1:
    rank(int(sys.argv[1]), int(sys.argv[2]))
else:
    both()
