"""
A guest beside a cluster: its kernel has control groups of version 2 alone, and runs a node's programs.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane import nvidia
from controlplane.cluster import DRIVER, ControlPlane
from controlplane.guest import kernel
from controlplane.guest.kernel import Guest
from controlplane.guest.node import GuestNode
from controlplane.machines.machine import MachineError
from controlplane_tests.conftest import PROBE_IMAGE, until
from testbed.processes import commands_with

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not kernel.runs_here(), reason="user-mode Linux runs on x86_64 only"),
]
RESOURCE = "guest.test/device"
DEVICE = "guest.test/gpu=one"

LIMIT = """
import sys
from pathlib import Path
import pynvml
from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver

driver = FakeDriver(Path(sys.argv[1]))
driver.load(version=FIRST_DRIVER_WITH_LIMITS)
driver.count_misc_as_there()
pynvml.nvmlInit()
limits = pynvml.c_nvmlSetMemoryLimits_v1_t(sys.argv[2].encode(), 0, 2000 << 20)
pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByIndex(0), limits)
"""
"""Loads a driver that holds limits, and sets one of 2000 MiB."""


@pytest.fixture(scope="module")
def node(cluster: ControlPlane, probe_image: Path) -> Iterator[GuestNode]:
    """Yield a node in a guest with the CDI specs of node-a, which describe one device."""
    specs = cluster.node("node-a").path(nvidia.CDI_FOLDER)
    specs.mkdir(exist_ok=True)
    edits = {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": f"{nvidia.DRIVER_ROOT}/dev/nvidia0"}]}
    kind, _, device = DEVICE.partition("=")
    spec = {"cdiVersion": "0.6.0", "kind": kind, "devices": [{"name": device, "containerEdits": edits}]}
    (specs / "guest.json").write_text(json.dumps(spec))
    found = cluster.guest_like("node-a", [nvidia.CDI_FOLDER], [probe_image])
    yield found
    found.machine.remove()
    (specs / "guest.json").unlink()


@pytest.fixture
def guest(node: GuestNode) -> Guest:
    """Return the guest."""
    return node.guest


def test_guest_has_control_groups_of_version_2_alone(guest: Guest) -> None:
    """Its containers can have all controllers that a kubelet needs. This machine's kernel may have version 1."""
    groups = [line for line in guest.run(["cat", "/proc/mounts"]).splitlines() if " /sys/fs/cgroup" in line]

    assert ["cgroup2"] == [line.split()[0] for line in groups]
    assert {"cpu", "io", "memory", "pids"} <= set(guest.run(["cat", "/sys/fs/cgroup/cgroup.subtree_control"]).split())


def test_program_that_fails_raises_with_its_output(guest: Guest) -> None:
    """As a command in a machine does. A program that runs has no exit status."""
    with pytest.raises(MachineError, match="exited with 3: no luck"):
        guest.run(["sh", "-c", "echo no luck >&2; exit 3"])

    job = guest.spawn(["sh", "-c", "echo begins; exec sleep 1000"])
    until(lambda: job.output == "begins\n", "the output of a running program can be read")
    assert job.status is None


def test_guest_cannot_change_this_machine(guest: Guest) -> None:
    """Its file tree is read-only, and its private folders are copies."""
    with pytest.raises(MachineError, match="Read-only file system"):
        guest.run(["touch", "/usr/file"])
    guest.run(["touch", "/run/nvidia/file"])

    assert not guest.machine.path("/run/nvidia/file").exists()


def test_container_has_the_device_that_a_plugin_names(node: GuestNode) -> None:
    """The kubelet asks the plugin, and containerd adds the CDI device. A Pod that requests none has none."""
    node.offer(RESOURCE, DEVICE)

    node.start_pod("with-device", PROBE_IMAGE, ["list", "/dev"], {RESOURCE: "1"})
    node.start_pod("without", PROBE_IMAGE, ["list", "/dev"], {})

    assert "/dev/nvidia0" in until(lambda: node.output("with-device"), "the Pod prints")
    assert "/dev/nvidia0" not in until(lambda: node.output("without"), "the Pod prints")


def test_container_has_its_limits_on_its_leaf_group(node: GuestNode, guest: Guest) -> None:
    """The group is below that of its Pod. The kernel says which processes are in it."""
    node.start_pod("limited", PROBE_IMAGE, ["serve", "8099"], {"memory": "64Mi", "cpu": "250m"})
    until(lambda: node.output("limited"), "the Pod prints")

    find = "find /sys/fs/cgroup/kubepods -name memory.max -exec grep --files-with-matches 67108864 {} +"
    pod, leaf = sorted(guest.run(["sh", "-c", find]).split(), key=len)

    assert Path(leaf).parent.parent == Path(pod).parent
    assert "25000 100000\n" == guest.run(["cat", str(Path(leaf).with_name("cpu.max"))])
    [pid] = guest.run(["cat", str(Path(leaf).with_name("cgroup.procs"))]).split()
    assert "/usr/local/bin/probe" in guest.run(["cat", f"/proc/{pid}/cmdline"])


def test_driver_holds_the_limit_of_a_group_for_a_program_without_environment(guest: Guest) -> None:
    """No library is preloaded, and the group is a real one. A program outside it sees the whole device."""
    group = "/sys/fs/cgroup/limited"
    guest.run(["sh", "-c", f"mkdir {group}; echo FAKE_DRIVER_DIR={nvidia.HARDWARE} >/run/fake-driver.env"])
    guest.run([sys.executable, "-c", LIMIT, nvidia.HARDWARE, group], {"LD_LIBRARY_PATH": str(DRIVER)})
    hold = f"exec env -i LD_LIBRARY_PATH={DRIVER} {sys.executable} -m workloads.gpu_hold --mib 1000 --then-mib 3000"

    inside = guest.run(["sh", "-c", f"echo $$ >{group}/cgroup.procs; {hold} --seconds 0"])
    outside = guest.run(["sh", "-c", f"{hold} --seconds 0"])

    assert ["allocated 1000 MiB of 2000 MiB visible", "cuMemAlloc(3000 MiB): CUDA_ERROR_OUT_OF_MEMORY"] == (
        inside.splitlines()
    )
    assert ["allocated 1000 MiB of 40960 MiB visible", "allocated 3000 MiB more"] == outside.splitlines()


def test_guest_ends_with_its_machine(cluster: ControlPlane) -> None:
    """Its kernel is a process of the machine, so nothing of it is left."""
    again = cluster.guest_like("node-b")

    again.machine.kill()

    assert [] == commands_with(str(again.machine.folder))
    again.machine.remove()
