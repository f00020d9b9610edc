"""
Sleep mode: an engine gives its memory back and keeps its addresses. Another uses the device, and the first wakes.

The fake driver cannot checkpoint: those calls only reach it.
"""

import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_uint64

from client import MIB, Cuda  # type: ignore[import-not-found]  # in the PYTHONPATH of test programs
from client import say as tell
from steps import limited, say

CACHE_MIB = 800
SIZE = c_size_t(CACHE_MIB * MIB)
NO = c_uint64(0)

if len(sys.argv) > 1:
    tell(Cuda().allocate(CACHE_MIB * MIB)[0])
    sys.exit()

cuda = Cuda()
lib = cuda.library
address = c_uint64()
say("addresses", lib.cuMemAddressReserve(byref(address), SIZE, NO, NO, NO))


def wake() -> tuple[list[int], c_uint64]:
    """Return the results of mapping new memory at the addresses, and the handle."""
    handle = c_uint64()
    results = [
        lib.cuMemCreate(byref(handle), SIZE, (c_uint64 * 4)(1, 1), NO),
        lib.cuMemMap(address, SIZE, NO, handle, NO),
    ]
    return [*results, lib.cuMemSetAccess(address, SIZE, (c_int * 3)(1, 0, 3), c_size_t(1))], handle


results, memory = wake()
say("the engine starts", results)
limited("free memory while it is awake, MiB", cuda.visible()[0])
for round_number in range(3):
    say(f"sleep {round_number}", [lib.cuMemUnmap(address, SIZE), lib.cuMemRelease(memory)])
    another = subprocess.run([sys.executable, __file__, "x"], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    say(f"another engine {round_number}", another.stdout.strip())
    results, memory = wake()
    say(f"wake {round_number}", results)
limited("free memory in the end, MiB", cuda.visible()[0])
state = c_int()
say("checkpoint: state", lib.cuCheckpointProcessGetState(c_int(1), byref(state)))
say(
    "checkpoint: lock and checkpoint",
    [lib.cuCheckpointProcessLock(1, None), lib.cuCheckpointProcessCheckpoint(1, None)],
)
say("checkpoint: restore and unlock", [lib.cuCheckpointProcessRestore(1, None), lib.cuCheckpointProcessUnlock(1, None)])
