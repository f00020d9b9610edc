"""
What a program asks before it uses NVLink, and what it then does: capabilities, access to peers, copies, multicast.
"""

from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

import pynvml
from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from steps import say

cuda = Cuda()
lib = cuda.library
for first, second in ((0, 1), (1, 0), (0, 2), (0, 3)):
    can, value = c_int(), c_int()
    result = lib.cuDeviceCanAccessPeer(byref(can), first, second)
    say(f"{first} may reach {second}", [result, can.value])
    for attribute in (1, 2, 3, 4):
        result = lib.cuDeviceGetP2PAttribute(byref(value), attribute, first, second)
        say(f"attribute {attribute} of {first} and {second}", [result, value.value])
for attribute in (102, 103, 104, 132, 133):
    say(f"attribute {attribute} of the device", [lib.cuDeviceGetAttribute(byref(value), attribute, 0), value.value])
peer, own = c_void_p(), cuda.context
say("context of the peer", lib.cuDevicePrimaryCtxRetain(byref(peer), 1))
say("access to the peer", lib.cuCtxEnablePeerAccess(peer, 0))
source = cuda.allocate(16 * MIB)
lib.cuCtxSetCurrent(peer)
target = cuda.allocate(16 * MIB)
say("memory of both", [source[0], target[0]])
size = c_size_t(16 * MIB)
say("copy", lib.cuMemcpyPeer(c_uint64(target[1]), peer, c_uint64(source[1]), own, size))
say("copy in a stream", lib.cuMemcpyPeerAsync(c_uint64(target[1]), peer, c_uint64(source[1]), own, size, None))
say("end of the access", lib.cuCtxDisablePeerAccess(peer))
shared, granularity = c_uint64(), c_size_t()
say("multicast granularity", lib.cuMulticastGetGranularity(byref(granularity), (c_uint64 * 4)(2, 2 * MIB, 1, 0), 1))
say("multicast", lib.cuMulticastCreate(byref(shared), (c_uint64 * 4)(2, 2 * MIB, 1, 0)))
say("multicast devices", [lib.cuMulticastAddDevice(shared, device) for device in (0, 1)])
say("multicast end", lib.cuMemRelease(shared))
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]


def asked(function: Callable[..., Any], *arguments: Any) -> str:
    """Return NVML's answer, or the text of its error."""
    try:
        return str(function(*arguments))
    except pynvml.NVMLError as error:
        return str(error)


say("links", [asked(pynvml.nvmlDeviceGetNvLinkState, handles[0], link) for link in range(3)])
say("topology", asked(pynvml.nvmlDeviceGetTopologyCommonAncestor, *handles))
say("peers by NVML", asked(pynvml.nvmlDeviceGetP2PStatus, *handles, 0))
