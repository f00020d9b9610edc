"""
A share where control groups are version 2: what the device plugin wrote for a Pod, under a kernel that has them alone.

The Nodes have the kernel of this machine, and a guest has no network. So the device plugin prepares a Pod on a Node of
the cluster, and the same CDI device, files and image serve Pods of the kubelet in a guest that is a copy of the Node.
On the Node a folder stands for cgroup v2. The Pod does not start there, because its real group is of version 1.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controlplane import nvidia
from controlplane.guest import kernel
from controlplane.guest.node import GuestNode
from harness.cluster import ROOT, Cluster, Settings
from harness.clusters.real import IMAGES, RealCluster
from harness.manifests import IMAGE, SLEEP, a_pod
from testbed.driver.hardware import CGROUPS, FIRST_DRIVER_WITH_LIMITS, VARIABLES_FILE, FakeNode
from testbed.waiting import NotInTimeError, eventually

pytestmark = [
    pytest.mark.real_only,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not kernel.runs_here(), reason="user-mode Linux runs on x86_64 only"),
]
NODE = FakeNode(
    "node-v2",
    FakeNode.of("node-v2", "Tesla T4", 16384, 2).gpus,
    nvidia.PLAIN.name,
    driver=FIRST_DRIVER_WITH_LIMITS,
)
STAND_IN = f"{nvidia.HARDWARE}/{CGROUPS}"
VALUES = {
    "devicePlugin.extraArgs": [f"--cgroup-root={STAND_IN}"],
    "devicePlugin.extraEnv": [
        {"name": "FAKE_DRIVER_CGROUP_ROOT", "value": STAND_IN},
        {"name": "FAKE_DRIVER_CGROUP", "value": "/"},
    ],
}
FOLDERS = ("/usr/local/vgpu", nvidia.CDI_FOLDER)
RESOURCE = "nvidia.com/gpu"
SECONDS = 120.0
DRILLS_SECONDS = 500.0
DRILLS = ("-m", "pytest", "drills", "-k", "misc", "--ignore=drills/test_pods.py", "-p", "no:cacheprovider", "-rs")
MEMORY_BYTES = 256 * 2**20
SHOW_REAL_GROUPS = f"rm -r {STAND_IN} && ln -s /sys/fs/cgroup {STAND_IN}"
TELL_HOOK = f"echo FAKE_DRIVER_DIR={nvidia.HARDWARE} >{VARIABLES_FILE}"
"""A runtime gives hooks no environment. A real driver needs none."""
COUNT_MISC = f"""
from pathlib import Path
from testbed.driver.hardware import FakeDriver
FakeDriver(Path({str(nvidia.HARDWARE)!r})).count_misc_as_there()
"""
BYPASS = """
linker=$(sed -n 's,.* \\(/.*/ld-linux[^ ]*\\)$,\\1,p' /proc/self/maps | head -n 1)
sed s,/etc/ld.so.preload,/etc/no.so.preload, $linker >/tmp/linker && chmod +x /tmp/linker
program=$(command -v gpu-hold)
exec /tmp/linker $(sed -n '1s/^#!//p' $program) $program "$@"
"""
"""Runs gpu-hold with a dynamic linker that reads no preload file."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def node(real_cluster: RealCluster) -> AsyncIterator[GuestNode]:
    """Yield a node in a guest that offers the device of a Pod with a share of 3000 MiB."""
    async with real_cluster.reshaped((NODE,), Settings(driver_root=nvidia.DRIVER_ROOT, values=VALUES)) as cluster:
        await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=3000))
        await eventually(lambda: _is_refused(cluster), "the hook refuses a group of version 1", SECONDS)
        pod, on = await cluster.pod("p"), await cluster.api.get(f"/api/v1/nodes/{NODE.name}")
        assert on["metadata"]["annotations"]["hami.io/node-enforcement"].startswith("driver: ")
        plane, image = cluster.control_plane, IMAGES / "workloads.tar"
        node = await asyncio.to_thread(plane.guest_like, NODE.name, FOLDERS, [image])
        try:
            await asyncio.to_thread(node.guest.run, ["sh", "-c", f"{SHOW_REAL_GROUPS} && {TELL_HOOK}"])
            await asyncio.to_thread(node.guest.run, ["env", f"--chdir={ROOT}/e2e", sys.executable, "-c", COUNT_MISC])
            uid = pod["metadata"]["uid"]
            [file] = plane.node(NODE.name).path(nvidia.CDI_FOLDER).glob(f"*{uid}*.json")
            spec = json.loads(file.read_text())
            device = f"{spec['kind']}={spec['devices'][0]['name']}"
            await asyncio.to_thread(node.offer, RESOURCE, device)
            yield node
        finally:
            await asyncio.to_thread(node.machine.remove)


async def _is_refused(cluster: Cluster) -> bool:
    """Return whether an Event of the Pod `p` has the sentence of the hook."""
    return any("hami-limit-hook: " in event["message"] for event in await cluster.events("p"))


async def _output(node: GuestNode, name: str, text: str) -> list[str]:
    """Return the lines of a Pod once one has *text*."""

    async def probe() -> list[str] | None:
        lines = await asyncio.to_thread(node.output, name)
        return lines if any(text in line for line in lines) else None

    try:
        return await eventually(probe, f"Pod {name} prints {text!r}", SECONDS)
    except NotInTimeError as error:
        raise AssertionError(f"{error}; the kubelet of the guest: {node.log}") from error


async def test_share_holds_on_cgroup_v2(node: GuestNode) -> None:
    """CUDA sees the share as the size of the device, and an allocation beyond it fails."""
    command = ["gpu-hold", "--mib", "1000", "--then-mib", "5000"]
    await asyncio.to_thread(node.start_pod, "greedy", IMAGE, command, {RESOURCE: "1"})

    lines = await _output(node, "greedy", "cuMemAlloc")

    assert ["allocated 1000 MiB of 3000 MiB visible", "cuMemAlloc(5000 MiB): CUDA_ERROR_OUT_OF_MEMORY"] == lines


async def test_driver_holds_the_share_of_a_program_without_the_library_on_cgroup_v2(node: GuestNode) -> None:
    """The hook of the CDI spec has set the limit on the container's group, before its first instruction."""
    command = ["sh", "-c", BYPASS, "sh", "--mib", "1000", "--then-mib", "5000"]
    await asyncio.to_thread(node.start_pod, "bypass", IMAGE, command, {RESOURCE: "1"})

    lines = await _output(node, "bypass", "cuMemAlloc")

    assert ["allocated 1000 MiB of 3000 MiB visible", "cuMemAlloc(5000 MiB): CUDA_ERROR_OUT_OF_MEMORY"] == lines


async def test_container_has_the_granted_device_alone_on_cgroup_v2(node: GuestNode) -> None:
    """By its device files. The driver's common files are there as well."""
    show = ["sh", "-c", "cd /dev; echo found: $(ls -d nvidia*)"]
    await asyncio.to_thread(node.start_pod, "looking", IMAGE, show, {RESOURCE: "1"})

    [found] = await _output(node, "looking", "found:")

    names = set(found.split()[1:])
    assert 1 == len(names & {"nvidia0", "nvidia1"})
    assert {"nvidiactl", "nvidia-uvm"} <= names


async def test_container_with_a_share_has_its_leaf_group_on_cgroup_v2(node: GuestNode) -> None:
    """The kubelet's memory limit is on the group that has the container's processes and no other."""
    command = ["sh", "-c", "echo runs; exec sleep 1000"]
    limits = {RESOURCE: "1", "memory": str(MEMORY_BYTES)}
    await asyncio.to_thread(node.start_pod, "leaf", IMAGE, command, limits)
    await _output(node, "leaf", "runs")

    find = f"grep --files-with-matches {MEMORY_BYTES} $(find /sys/fs/cgroup/kubepods -name memory.max)"
    _, leaf = sorted((await asyncio.to_thread(node.guest.run, ["sh", "-c", find])).split(), key=len)
    processes = "for pid in $(cat ${0%/*}/cgroup.procs); do tr '\\0' ' ' </proc/$pid/cmdline; done"
    running = await asyncio.to_thread(node.guest.run, ["sh", "-c", processes, leaf])

    assert "sleep 1000 " == running


async def test_driver_holds_the_share_in_every_drill_on_cgroup_v2(node: GuestNode) -> None:
    """The limits are on real groups here: what SECURITY.md promises does not come from a stand-in."""
    command = ["env", f"--chdir={ROOT}/e2e", sys.executable, *DRILLS]
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}

    output = await asyncio.to_thread(node.guest.run, command, environment, DRILLS_SECONDS)

    assert "skipped" not in output
