"""
A share where control groups are version 2: what the device plugin wrote for a Pod, under a kernel that has them alone.

The Nodes have the kernel of this machine, and a guest has no network. So the device plugin serves a Pod on a Node of
the cluster, and the same CDI device, files and image serve Pods of the kubelet in a guest that is a copy of the Node.
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
from harness.cluster import ROOT, Settings
from harness.manifests import IMAGE, SLEEP, a_pod
from harness.real import IMAGES, RealCluster
from testbed.hardware import FakeNode
from testbed.waiting import eventually

pytestmark = [
    pytest.mark.real_only,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not kernel.runs_here(), reason="user-mode Linux runs on x86_64 only"),
]
NODE = FakeNode("node-v2", FakeNode.of("node-v2", "Tesla T4", 16384, 2).gpus, nvidia.PLAIN.name)
FOLDERS = ("/usr/local/vgpu", nvidia.CDI_FOLDER)
RESOURCE = "nvidia.com/gpu"
SECONDS = 120.0
DRILLS_SECONDS = 500.0
DRILLS = ("-m", "pytest", "drills", "-k", "driver", "--ignore=drills/test_pods.py", "-p", "no:cacheprovider", "-rs")
MEMORY_BYTES = 256 * 2**20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def node(real_cluster: RealCluster) -> AsyncIterator[GuestNode]:
    """Yield a node in a guest that offers the device of a Pod with a share of 3000 MiB."""
    async with real_cluster.reshaped((NODE,), Settings(driver_root=nvidia.DRIVER_ROOT)) as cluster:
        await cluster.create(a_pod("p", command=SLEEP, gpu=1, gpumem=3000))
        pod = await cluster.pod_in_phase("p", "Running", SECONDS)
        plane, image = cluster.control_plane, IMAGES / "workloads.tar"
        node = await asyncio.to_thread(plane.guest_like, NODE.name, FOLDERS, [image])
        try:
            uid = pod["metadata"]["uid"]
            [file] = plane.node(NODE.name).path(nvidia.CDI_FOLDER).glob(f"*{uid}*.json")
            spec = json.loads(file.read_text())
            device = f"{spec['kind']}={spec['devices'][0]['name']}"
            await asyncio.to_thread(node.offer, RESOURCE, device)
            yield node
        finally:
            await asyncio.to_thread(node.machine.remove)


async def _output(node: GuestNode, name: str, text: str) -> list[str]:
    """Return the lines of a Pod once one has *text*."""

    async def probe() -> list[str] | None:
        lines = await asyncio.to_thread(node.output, name)
        return lines if any(text in line for line in lines) else None

    return await eventually(probe, f"Pod {name} prints {text!r}", SECONDS)


async def test_share_holds_on_cgroup_v2(node: GuestNode) -> None:
    """CUDA sees the share as the size of the device, and an allocation beyond it fails."""
    command = ["gpu-hold", "--mib", "1000", "--then-mib", "5000"]
    await asyncio.to_thread(node.start_pod, "greedy", IMAGE, command, {RESOURCE: "1"})

    lines = await _output(node, "greedy", "cuMemAlloc")

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
