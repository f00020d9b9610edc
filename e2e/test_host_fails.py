"""
A host whose disk is full or read-only, or whose plugin has no file descriptors: Pods wait, say why, and run later.
"""

import resource
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from harness.cluster import Cluster
from harness.clusters.embedded import EmbeddedCluster
from harness.invariants import check
from harness.manifests import a_pod
from testbed import disks
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only

NODE, PLUGIN = "node-a", "plugin-node-a"
ON_NODE = {"nvidia.com/use-gputype": "A100"}
WAITING_PODS = 3
PLACED_SECONDS = 90.0
Trouble = Callable[[EmbeddedCluster], AbstractContextManager[None]]


@contextmanager
def full_disk(cluster: EmbeddedCluster) -> Iterator[None]:
    """Let the file system of the containers' directories have no room for another name."""
    place = cluster.vgpu_folder(NODE) / "containers"
    with disks.small_disk(place, "nr_inodes=1"):
        yield


@contextmanager
def full_cdi_directory(cluster: EmbeddedCluster) -> Iterator[None]:
    """Let the file system of the CDI specs have no room for another byte."""
    with disks.small_disk(cluster.cdi_folder(NODE)) as disk:
        disks.fill(disk)
        yield


@contextmanager
def read_only_directory(cluster: EmbeddedCluster) -> Iterator[None]:
    """Let the plugin's directory be read-only."""
    with disks.read_only(cluster.vgpu_folder(NODE)):
        yield


@contextmanager
def no_descriptors(cluster: EmbeddedCluster) -> Iterator[None]:
    """Let the plugin open no file."""
    pid = cluster.processes[PLUGIN].pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("trouble", "because"),
    [
        pytest.param(full_disk, "No space left on device", id="full disk"),
        pytest.param(full_cdi_directory, "No space left on device", id="full CDI directory"),
        pytest.param(read_only_directory, "Read-only file system", id="read-only directory"),
        pytest.param(no_descriptors, "Too many open files", id="no file descriptors"),
    ],
)
async def test_pods_wait_for_a_host_that_fails_and_run_afterwards(
    cluster: Cluster, trouble: Trouble, because: str
) -> None:
    """Running Pods go on, waiting ones name the reason, and what must always hold holds before and after."""
    assert isinstance(cluster, EmbeddedCluster)
    if trouble is not no_descriptors and not disks.may_mount():
        pytest.skip("needs root, to mount a file system")
    await cluster.create(a_pod("before", annotations=ON_NODE, gpu=1, gpumem=1000))
    before = await cluster.pod_in_phase("before", "Running")
    names = [f"p{number}" for number in range(WAITING_PODS)]
    with trouble(cluster):
        for name in names:
            await cluster.create(a_pod(name, annotations=ON_NODE, gpu=1, gpumem=1000))
        for name in names:
            await eventually(says(cluster, name, because), f"{name} says why", PLACED_SECONDS)
        await check(cluster)
    for name in names:
        await cluster.pod_in_phase(name, "Running", PLACED_SECONDS)

    after = await cluster.pod("before")
    assert before["status"]["containerStatuses"] == after["status"]["containerStatuses"]


def says(cluster: Cluster, pod: str, text: str) -> Callable[[], Awaitable[bool]]:
    """Return a check that an Event of *pod* has *text*."""

    async def checked() -> bool:
        return any(text in event["message"] for event in await cluster.events(pod))

    return checked
