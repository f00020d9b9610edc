"""
What the programs of a container have taken of a device's memory, in truth.

Neighbours: `container` runs them, `promises` has the words for it.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from drills.container import Container
from drills.holders import Cgroup, Holder, Host, Library, scratch
from drills.promises import BOTH, DMEM, LIBRARY, Enforced, Promise, holds, leaves
from drills.watchdog import Listed, findings
from hamicommon.wire.limits_file import DeviceLimits
from testbed.driver.hardware import FakeNode

SHARE_MIB = 1000
_LEND = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
context, pointer, handle = ctypes.c_void_p(), ctypes.c_uint64(), (ctypes.c_ubyte * 64)()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(sys.argv[1]) << 20))
driver.cuIpcGetMemHandle(handle, pointer)
print(bytes(handle).hex(), flush=True)
sys.stdin.read()
"""
_READ_GROUP = """
import sys
import pynvml
pynvml.nvmlInit()
limits = pynvml.c_nvmlGetMemoryLimits_v1_t(sys.argv[1].encode())
pynvml.nvmlDeviceGetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByIndex(0), limits)
print(limits.currentUsed)
"""


class MemoryContainer(Container):
    """A container with SHARE_MIB of a device of 16 GiB, on a Node of its own."""

    def __init__(self, programs: Path, enforced: Enforced) -> None:
        node = FakeNode.of("drilled", "Fake A", 16384, 1)
        folder = scratch()
        variables = {"FAKE_DRIVER_DIR": str(folder / "hardware"), "FAKE_DRIVER_CONTEXT_MIB": "0"}
        host = Host(folder, node.gpus[0].uuid, variables)
        node.write_hardware(host.hardware)
        super().__init__(host, programs, _holders(host, enforced.by))
        self.promise = enforced.promise
        self._lender: asyncio.subprocess.Process | None = None

    async def outcome(self, script: str, results: int = 2) -> Promise:
        """Run a shell script until its programs have printed so many results, and return what they got in truth."""
        log = await self.run(script, results)
        await self._end_lender()
        listed = Listed.on(self.host)
        used_mib = sum(listed.used_bytes.values()) >> 20
        assert used_mib >= SHARE_MIB, f"the script took {used_mib} MiB, less than its share:\n{log}"
        found = await findings(listed, self.pid, (self.host.uuid, SHARE_MIB), self.region, grouped=self._grouped())
        return holds(*found) if used_mib == SHARE_MIB else leaves(*found)

    async def lend(self, memory_mib: int) -> str:
        """
        Return the handle of memory of a process outside the container, in hexadecimal digits.

        The process ends before it is found out what the container has.
        """
        command, pipe = (sys.executable, "-c", _LEND, str(memory_mib)), asyncio.subprocess.PIPE
        self._lender = await asyncio.create_subprocess_exec(
            *command, env=self.host.environment, stdin=pipe, stdout=pipe
        )
        assert self._lender.stdout is not None
        return (await self._lender.stdout.readline()).decode().strip()

    async def remove(self) -> None:
        """End the lender, too."""
        await self._end_lender()
        await super().remove()

    async def _end_lender(self) -> None:
        if self._lender is not None and self._lender.returncode is None:
            self._lender.kill()
            await self._lender.wait()

    def _grouped(self) -> int | None:
        """Return the bytes of the container's cgroup, if the driver limits it."""
        group = next((holder.path for holder in self.holders if isinstance(holder, Cgroup)), None)
        return int(self.host.run([sys.executable, "-c", _READ_GROUP, str(group)])) if group else None


def _holders(host: Host, by: str) -> Sequence[Holder]:
    found: list[Holder] = []
    if by in {LIBRARY, BOTH}:
        found.append(Library(host, DeviceLimits(SHARE_MIB << 20, 100)))
    if by != LIBRARY:
        found.append(Cgroup(host, SHARE_MIB, has_dmem=by == DMEM))
    return found
