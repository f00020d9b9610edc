"""
The monitor's watchdog in a guest without a cluster: the kernel has control groups of version 2 alone.

The groups have the names that a kubelet and containerd give them, which `test_cgroup_v2` shows of real ones.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster import DRIVER
from controlplane.guest import kernel
from controlplane.guest.kernel import Guest, Job
from controlplane.machines.machine import Description, Machine
from controlplane_tests.conftest import until
from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver, FakeNode

pytestmark = [
    pytest.mark.usefixtures("able_machine", "driver"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not kernel.runs_here(), reason="user-mode Linux runs on x86_64 only"),
]
ROOT = Path(__file__).parents[2]
NODE = replace(FakeNode.of("node-v2", "Tesla T4", 16384, 1), driver=FIRST_DRIVER_WITH_LIMITS)
HARDWARE, HOOK_PATH = "/run/hardware", "/run/vgpu"
VARIABLES = {"FAKE_DRIVER_DIR": HARDWARE, "LD_LIBRARY_PATH": str(DRIVER)}
SHARE_MIB = 3000
INSIDE, OUTSIDE = "1111aaaa-0000-4000-8000-000000000000", "2222bbbb-0000-4000-8000-000000000000"
REGION, EMPTY = (f"{HOOK_PATH}/containers/{uid}_main" for uid in (INSIDE, OUTSIDE))
LIBRARY = {
    "LD_PRELOAD": str(ROOT / "build/native/libvgpu.so"),
    "CUDA_DEVICE_MEMORY_LIMIT_0": f"{SHARE_MIB}m",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": f"{REGION}/region.cache",
}
LIMIT = "import os, sys; from testbed.driver.memory_limits import limit_memory as limit; "
LIMIT += "limit(sys.argv[1], {sys.argv[2]: int(sys.argv[3]) << 20}, os.environ)"
LIST = """
import sys
from pathlib import Path
import pynvml
from testbed.driver.hardware import FakeDriver
driver, uuid = FakeDriver(Path(sys.argv[1])), sys.argv[2]
driver.recover()
driver.recover(uuid)
"""
HIDE = f"""{LIST}
driver.fail(pynvml.NVML_ERROR_NOT_SUPPORTED, call="nvmlDeviceGetComputeRunningProcesses_v3")
driver.fail(pynvml.NVML_ERROR_NOT_SUPPORTED, uuid, "nvmlDeviceGetComputeRunningProcesses_v2")
"""
"""The second call is the one that is made where the first is missing."""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """
    Yield a guest with two containers that have a share of 3000 MiB.

    One has the library, which keeps its region. The other has neither, and 4000 MiB, because somebody has raised its
    limit.
    """
    folder = tmp_path_factory.mktemp("guest")
    machine = Machine(folder, Description("guest", f"hami-test-{os.getpid()}", "", (), (str(folder), str(ROOT))))
    machine.start()
    NODE.write_hardware(machine.path(HARDWARE))
    FakeDriver(machine.path(HARDWARE)).count_misc_as_there()
    for file in ("schedule", "state"):
        # The driver makes them again. The guest's kernel sees no holes in files, so copies would be 1.4 GB.
        (machine.path(HARDWARE) / file).unlink(missing_ok=True)
    found = Guest(machine)
    found.start()
    found.run(["mkdir", "-p", REGION, EMPTY])
    programs = [
        _hold(found, INSIDE, mib=1000, limit_mib=SHARE_MIB, variables=LIBRARY),
        _hold(found, OUTSIDE, mib=4000, limit_mib=5000, variables={}),
    ]
    until(lambda: all("allocated" in program.output for program in programs), "both programs have memory")
    yield found
    machine.remove()


def test_watchdog_finds_a_container_by_its_group_alone(guest: Guest) -> None:
    """The driver lists no process. It says how much the folder has that the watchdog finds for the container."""
    guest.run([sys.executable, "-c", HIDE, HARDWARE, NODE.gpus[0].uuid])

    assert [["outside", "memory-above-grant"], ["outside", "not-in-region"]] == _findings(guest)


def test_watchdog_finds_the_container_of_a_process(guest: Guest) -> None:
    """The driver lists the processes of the Node, and the kernel says in which group each is."""
    guest.run([sys.executable, "-c", LIST, HARDWARE, NODE.gpus[0].uuid])

    assert [["outside", "library-not-loaded"], ["outside", "memory-above-grant"]] == _findings(guest)


def _findings(guest: Guest) -> list[list[str]]:
    """Return Pod and kind of each finding."""
    file = guest.machine.folder / "pods.json"
    file.write_text(json.dumps([_pod("inside", INSIDE), _pod("outside", OUTSIDE)]))
    program = Path(__file__).with_name("watchdog_of_guest.py")
    output = guest.run([sys.executable, str(program), HOOK_PATH, "/", str(file)], VARIABLES)
    found: list[list[str]] = json.loads(output.splitlines()[-1])
    return sorted(found)


def _container_id(pod_uid: str) -> str:
    return pod_uid[:8] * 8


def _hold(guest: Guest, pod_uid: str, *, mib: int, limit_mib: int, variables: Mapping[str, str]) -> Job:
    """Start a program that keeps so much memory, in the group of a container whose limit is *limit_mib*."""
    group = f"/sys/fs/cgroup/kubepods/besteffort/pod{pod_uid}/{_container_id(pod_uid)}"
    guest.run(["mkdir", "-p", group])
    guest.run([sys.executable, "-c", LIMIT, group, NODE.gpus[0].uuid, str(limit_mib)], VARIABLES)
    given = " ".join(f"{name}={value}" for name, value in variables.items())
    hold = f"exec env {given} {sys.executable} -m workloads.gpu_hold --mib {mib}"
    return guest.spawn(["sh", "-c", f"echo $$ >{group}/cgroup.procs; {hold}"], VARIABLES)


def _pod(name: str, uid: str) -> dict[str, Any]:
    """Return a Pod with a share of the device, as the API server would have it."""
    granted = f"{NODE.gpus[0].uuid},NVIDIA,{SHARE_MIB},0:;"
    annotations = {"hami.io/vgpu-node": NODE.name, "hami.io/vgpu-devices-allocated": granted}
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    started = {"name": "main", "containerID": f"containerd://{_container_id(uid)}"}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": uid, "annotations": annotations},
        "spec": {"nodeName": NODE.name, "containers": [container]},
        "status": {"phase": "Running", "containerStatuses": [started]},
    }
