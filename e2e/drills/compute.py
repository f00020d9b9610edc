"""
What part of a device's time and multiprocessors the programs of a container get, in truth.

Neighbours: `container` runs them, `promises` has the words for it.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from drills.container import Container
from drills.holders import Holder, Host, Instance, Library, Namespace, scratch
from drills.promises import LIBRARY, MIG, MPS_REQUIRED, NO_DEVICE, Enforced, Promise, holds, leaves
from drills.watchdog import Listed, findings
from hamicommon.wire.limits_file import DeviceLimits
from testbed.driver.hardware import FakeNode

SHARE_PERCENT = 25
TOLERANCE_POINTS = 2
"""By how much a program may pass its share."""
LEAST_PART = 0.75
"""Of its share that a program gets at least. On a busy machine it misses some of its turns."""
MEMORY_MIB = 16384
_INSTANCE = "MIG-4d2d6a3e-0000-4000-8000-000000000001"
_RESULT = re.compile(r"^(\d+): (\d+)$", re.MULTILINE)


class ComputeContainer(Container):
    """A container with SHARE_PERCENT of a device's compute and all of its memory; or with a MIG instance."""

    def __init__(self, programs: Path, enforced: Enforced) -> None:
        node = FakeNode.of("drilled", "NVIDIA A100-SXM4-40GB", MEMORY_MIB, 1)
        folder, is_mig = scratch(), enforced.by == MIG
        variables = {"FAKE_DRIVER_DIR": str(folder / "hardware"), "FAKE_DRIVER_CONTEXT_MIB": "0"}
        host = Host(folder, _INSTANCE if is_mig else node.gpus[0].uuid, variables)
        node.write_hardware(host.hardware)
        if is_mig:
            _add_instance(host.hardware / "devices.csv")
        super().__init__(host, programs, _holders(host, enforced.by))
        self.promise = enforced.promise
        self._share_percent = 100 if is_mig else SHARE_PERCENT
        """Of the device that the container sees."""

    async def outcome(self, script: str, results: int = 1) -> Promise:
        """Run a shell script until its programs have printed so many results, and return what they got in truth."""
        log = await self.run(script, results)
        rows = [(int(done), int(passed)) for done, passed in _RESULT.findall(log)]
        percent = 100 * sum(done for done, _ in rows) / max(passed for _, passed in rows)
        if not percent:
            return NO_DEVICE
        assert percent >= LEAST_PART * self._share_percent, f"{percent:.1f} %, less than the share:\n{log}"
        share = (self.host.uuid, MEMORY_MIB)
        in_namespace = any(isinstance(holder, Namespace) for holder in self.holders)
        found = await findings(Listed.on(self.host), self.pid, share, self.region, in_namespace=in_namespace)
        return holds(*found) if percent <= self._share_percent + TOLERANCE_POINTS else leaves(*found)


def _holders(host: Host, by: str) -> Sequence[Holder]:
    if by == MIG:
        return [Instance(host)]
    percent = SHARE_PERCENT if by == LIBRARY else 100
    library = Library(host, DeviceLimits(MEMORY_MIB << 20, percent))
    return [library] if by == LIBRARY else [library, Namespace(host, SHARE_PERCENT, is_required=by == MPS_REQUIRED)]


def _add_instance(devices: Path) -> None:
    """Add an instance of the GPU to the file *devices*: it has the GPU's address."""
    address = devices.read_text().rstrip().rpartition(",")[2]
    with devices.open("a") as file:
        file.write(f"{_INSTANCE},NVIDIA A100-SXM4-40GB MIG 1g.5gb,4864,0,{address}\n")
