"""
The moments around the two checkpoints that the kubelet writes for a claim, each held long enough to kill a part in it.

The kubelet remembers in a file which Pods use which claims. It writes it before it has the driver prepare a claim, and
again with the claim's devices before it makes the Pod's sandbox. A checkpoint cannot be written while the file is a
mount: the kubelet replaces it by a rename.
Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/cm/dra/manager.go (prepareResources)
"""

import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial

from hamicommon.model import Object
from harness.clusters.dra import DraCluster
from testbed.waiting import eventually

FILE = "/var/lib/kubelet/dra_manager_state"
WAIT_SECONDS = 60.0

Moment = Callable[[DraCluster, Object], AbstractAsyncContextManager[None]]
"""It creates a Pod of this manifest, and its block runs in the moment."""


def checkpoint(cluster: DraCluster) -> Mapping[str, bool]:
    """Return the claims that the Node's kubelet remembers, by UID, and whether it knows their devices."""
    written = json.loads(cluster.control_plane.node(cluster.node).path(FILE).read_text())
    claims = json.loads(written["Data"])["ClaimInfoStateList"] or []
    return {each["ClaimUID"]: any(state.get("Devices") for state in each["DriverState"].values()) for each in claims}


@asynccontextmanager
async def before_the_first(cluster: DraCluster, manifest: Object) -> AsyncIterator[None]:
    """The kubelet has read the claim, and nothing of it is on disk."""
    with _unwritable(cluster):
        await cluster.create(manifest)
        await says(cluster, manifest["metadata"]["name"], "checkpoint ResourceClaim cache")
        yield


@asynccontextmanager
async def after_the_first(cluster: DraCluster, manifest: Object) -> AsyncIterator[None]:
    """The kubelet remembers the claim, has called the plugin, and has no answer."""
    with _stopped(await cluster.pid(f"plugin-{cluster.node}")):
        await cluster.create(manifest)
        await eventually(lambda: checkpoint(cluster), "the kubelet remembers the claim", WAIT_SECONDS)
        assert not cluster.leftovers()
        yield


@asynccontextmanager
async def before_the_second(cluster: DraCluster, manifest: Object) -> AsyncIterator[None]:
    """The plugin has prepared the claim, and the kubelet remembers no device of it."""
    async with AsyncExitStack() as held:
        async with after_the_first(cluster, manifest):
            held.enter_context(_unwritable(cluster))
        await says(cluster, manifest["metadata"]["name"], "checkpoint ResourceClaim state")
        assert [False] == [*checkpoint(cluster).values()]
        assert cluster.specs()
        yield


@asynccontextmanager
async def after_the_second(cluster: DraCluster, manifest: Object) -> AsyncIterator[None]:
    """The kubelet remembers the devices, and the runtime has not made the sandbox."""
    runtime = cluster.control_plane.node(cluster.node).machine.services()["containerd"]
    assert runtime is not None
    async with AsyncExitStack() as held:
        async with after_the_first(cluster, manifest):
            held.enter_context(_stopped(runtime))
        knows = partial(_knows_devices, cluster)
        await eventually(knows, "the kubelet remembers the devices", WAIT_SECONDS)
        yield


MOMENTS: Mapping[str, Moment] = {
    moment.__name__: moment for moment in (before_the_first, after_the_first, before_the_second, after_the_second)
}


async def says(cluster: DraCluster, pod: str, text: str) -> None:
    """Wait until an Event of a Pod has *text*."""

    async def probe() -> bool:
        return any(text in event["message"] for event in await cluster.events(pod))

    await eventually(probe, f"an Event of {pod} says {text!r}", WAIT_SECONDS)


def _knows_devices(cluster: DraCluster) -> bool:
    known = checkpoint(cluster)
    return bool(known) and all(known.values())


@contextmanager
def _unwritable(cluster: DraCluster) -> Iterator[None]:
    """Let the kubelet write no checkpoint during a block."""
    machine = cluster.control_plane.node(cluster.node).machine
    machine.run(["mount", "--bind", FILE, FILE])
    try:
        yield
    finally:
        machine.run(["umount", FILE])


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Stop a process during a block (SIGSTOP), in which it may be killed."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
