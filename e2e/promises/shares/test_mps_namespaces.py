"""
Where MPS limits compute, a container has its part of a device, whatever its programs do.

NVIDIA's programs are stand-ins, which the device plugin runs in a driver's root.
"""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from controlplane import nvidia
from hamicommon.model import Object
from harness.cluster import Cluster, Settings
from harness.clusters import embedded
from harness.manifests import HOLD, SLEEP, a_pod
from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeNode
from testbed.driver.mps import daemon_pid, driver_root
from testbed.folders import short_folder
from testbed.waiting import eventually

if TYPE_CHECKING:
    from harness.clusters.real import RealCluster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount and change to a driver's root")

NODE = FakeNode(
    "node-mps",
    FakeNode.of("node-mps", "NVIDIA A100-SXM4-40GB", 40960, 1).gpus,
    nvidia.PLAIN.name,
    driver=FIRST_DRIVER_WITH_MPS,
)
PLUGIN = f"plugin-{NODE.name}"
MODE = {"nodeconfig": [{"name": NODE.name, "operatingmode": "mps"}]}
REQUIRED = "mps-required"
PIPES = "run/hami/mps"
"""The folder of the daemon in the driver's root."""
TENANT = {"runAsNonRoot": True, "runAsUser": 60000, "allowPrivilegeEscalation": False}
CORES, TOLERANCE = 25, 2
SECONDS = 60.0

BUSY = "gpu-hold --mib 100 --busy 100 --kernel-us 1000000 --report --seconds 1"
"""Prints which part of the device it had, by how long a kernel took that takes 1 s on all of it."""
PLACE = 'PATH="$PATH" LD_LIBRARY_PATH="$LD_LIBRARY_PATH" FAKE_DRIVER_DIR="$FAKE_DRIVER_DIR"'
"""Where the stand-in's driver is. A real one is found without variables."""
BYPASS = f"""
linker=$(sed -n 's,.* \\(/.*/ld-linux[^ ]*\\)$,\\1,p' /proc/self/maps | head -n 1)
sed s,/etc/ld.so.preload,/etc/no.so.preload, $linker >/scratch/linker && chmod +x /scratch/linker
program=$(command -v gpu-hold)
set -- /scratch/linker $(sed -n '1s/^#!//p' $program) $program {BUSY.partition(" ")[2]}
"""
"""Sets the arguments to the same command, with a dynamic linker that reads no preload file."""
AS_TOLD = {
    "as it is": BUSY,
    "with an empty environment": f"env -i {PLACE} {BUSY}",
    "without the library": f'{BYPASS} exec "$@"',
    "without the library and with an empty environment": f'{BYPASS} exec env -i {PLACE} "$@"',
    "with a larger percentage": f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100 {BUSY}",
    "with an empty folder of pipes": f"CUDA_MPS_PIPE_DIRECTORY= {BUSY}",
}
"""What a tenant may do, and has its part all the same."""
ELSEWHERE = "CUDA_MPS_PIPE_DIRECTORY=/nowhere"
COMMANDS = """
import re, socket
def ask(*words):
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.connect("/tmp/nvidia-mps/control")
    control.send("\\x1f".join(("command", *words)).encode())
    return control.recv(65536).decode().partition("\\x1f")
[own] = set(re.findall("/(hami_[0-9a-f]+) /tmp/nvidia-mps", open("/proc/self/mountinfo").read()))
for words in (
    ("set", own, "--server=hami", "--active-thread-percentage=100"),
    ("delete", own, "--server=hami", "--force"),
    ("create", "mine", "--server=hami"),
):
    _, _, text = ask("namespace", *words)
    print(f"{words[0]}: {text.strip()}", flush=True)
"""
"""What a tenant asks of the daemon, by the socket that it has."""


@dataclass(frozen=True)
class MpsNode:
    """A cluster whose only Node has MPS."""

    cluster: Cluster
    pipes: Path
    """The folder of its daemon, on this machine."""

    def namespaces(self) -> set[str]:
        """Return the names of the namespaces that have a folder."""
        return {path.name for path in (self.pipes / "hami").glob("hami_*")}

    async def until_empty(self) -> None:
        """Wait until no Pod's namespace is left."""
        await eventually(lambda: not self.namespaces(), "no namespace is left", SECONDS)

    async def start(self, name: str, script: str) -> None:
        """Start a Pod of a tenant. A program that ends is not started again."""
        await self.cluster.create(a_tenants_pod(name, ("sh", "-c", script)))

    async def part(self, name: str) -> float:
        """Return the percentage of the device that the program of a Pod had."""
        return float((await self.line("busy", name)).split()[1])

    async def line(self, text: str, name: str) -> str:
        """Return the first line of a Pod with *text*."""

        async def probe() -> str | None:
            lines = (await self.cluster.log(name)).splitlines()
            return next((line for line in lines if text in line), None)

        return await eventually(probe, f"{name} prints {text!r}", SECONDS)

    async def event(self, name: str, text: str) -> Object:
        """Return the first Event about a Pod with *text* in its reason or message."""

        async def probe() -> Object | None:
            found = await self.cluster.events(name)
            return next((event for event in found if text in f"{event['reason']}: {event['message']}"), None)

        return await eventually(probe, f"{name} has an Event with {text!r}", SECONDS)


def a_tenants_pod(name: str, command: tuple[str, ...]) -> Object:
    """Return a Pod that can never be root, with a quarter of a device."""
    pod = a_pod(name, command=command, gpu=1, gpumem=3000, gpucores=CORES)
    pod["spec"] |= {"restartPolicy": "Never", "volumes": [{"name": "scratch", "emptyDir": {}}]}
    [container] = pod["spec"]["containers"]
    container |= {"securityContext": TENANT, "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}
    return pod


@asynccontextmanager
async def on_embedded(node_config: Path) -> AsyncIterator[MpsNode]:
    """Run an embedded cluster whose Node has a driver's root with MPS."""
    folder, apart = short_folder(), short_folder()
    with driver_root(apart, embedded.FAKE_DRIVER, folder / NODE.name / "hardware") as root:
        pipes = root / PIPES
        roots = (f"--driver-root-ctr-path={root}", f"--nvidia-driver-root={root}")
        flags = (*roots, f"--compute-enforcement={REQUIRED}", f"--cgroup-root={folder}/none")
        settings = Settings(node_config=node_config, plugin_flags=(*Settings().plugin_flags, *flags))
        try:
            async with embedded.running(folder, (NODE,), settings) as cluster:
                yield MpsNode(cluster, pipes)
        finally:
            with suppress(OSError):
                os.kill(daemon_pid(pipes), signal.SIGTERM)
    # Never with what is mounted there, if something is.
    for path in (*apart.iterdir(), apart):
        path.rmdir()


@asynccontextmanager
async def on_real(real_cluster: "RealCluster") -> AsyncIterator[MpsNode]:
    """Give the real cluster a Node with MPS."""
    values = {"devicePlugin.computeEnforcement": REQUIRED, "devicePlugin.nodeConfig": MODE}
    settings = Settings(driver_root=nvidia.DRIVER_ROOT, values=values)
    async with real_cluster.reshaped((NODE,), settings) as cluster:
        yield MpsNode(cluster, cluster.control_plane.node(NODE.name).path(nvidia.DRIVER_ROOT) / PIPES)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def node(tmp_path_factory: pytest.TempPathFactory, real_cluster: "RealCluster | None") -> AsyncIterator[MpsNode]:
    """A Node whose devices take clients of MPS alone."""
    node_config = tmp_path_factory.mktemp("node") / "config.json"
    node_config.write_text(json.dumps(MODE))
    async with on_real(real_cluster) if real_cluster else on_embedded(node_config) as found:
        yield found


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def cluster_of_node(node: MpsNode) -> Cluster:
    """Return the cluster, without Pods of the test before. Their programs have no work that a kill would interrupt."""
    await node.cluster.delete_all_pods()
    return node.cluster


@pytest.mark.parametrize("script", AS_TOLD.values(), ids=AS_TOLD)
async def test_container_has_its_part_of_the_device_whatever_its_program_does(node: MpsNode, script: str) -> None:
    """By the time that a kernel takes which would take a second on the whole device."""
    await node.start("p", script)

    assert abs(CORES - await node.part("p")) <= TOLERANCE


@pytest.mark.parametrize("script", [f"{ELSEWHERE} {BUSY}", f'{BYPASS} exec env {ELSEWHERE} "$@"'], ids=["with", "out"])
async def test_program_that_leaves_its_namespace_has_no_device(node: MpsNode, script: str) -> None:
    """With the library and without it."""
    await node.start("p", script)

    assert "CUDA_ERROR_DEVICE_UNAVAILABLE" in await node.line("gpu-hold: ", "p")


async def test_tenant_cannot_change_its_namespace(node: MpsNode) -> None:
    """The daemon refuses each command that it sends by the socket it has, and its part stays."""
    await node.start("p", f"python3 -c '{COMMANDS}' && {BUSY}")

    for verb in "set", "delete", "create":
        assert f"{verb}: Insufficient privileges" in await node.line(f"{verb}: ", "p")
    assert abs(CORES - await node.part("p")) <= TOLERANCE


async def test_container_that_may_be_root_does_not_start_and_its_event_says_what_to_write(node: MpsNode) -> None:
    """Root may change any namespace."""
    await node.until_empty()
    await node.cluster.create(a_pod("root", command=SLEEP, gpu=1, gpumem=3000, gpucores=CORES))

    found = await node.event("root", "root may change its limits")

    assert "set allowPrivilegeEscalation: false and runAsNonRoot: true" in found["message"]
    assert "Pending" == (await node.cluster.pod("root"))["status"]["phase"]
    assert set() == node.namespaces()


async def test_namespace_goes_with_its_pod(node: MpsNode) -> None:
    """The plugin's metrics show it, its percentage and its clients, as long as the Pod runs."""
    await node.until_empty()
    await node.cluster.create(a_tenants_pod("p", HOLD))
    await node.line("allocated", "p")
    assert 1 == len(node.namespaces())
    labels = f'{{container="main",namespace="{node.cluster.namespace}",pod="p"}}'
    shown = (f"hami_device_plugin_mps_percent{labels} {CORES}.0", f"hami_device_plugin_mps_clients{labels} 1.0")

    async def is_shown() -> bool:
        lines = (await node.cluster.metrics(PLUGIN)).splitlines()
        return all(line in lines for line in shown)

    await eventually(is_shown, "the plugin's metrics have the namespace", SECONDS)
    annotations = (await node.cluster.api.get(f"/api/v1/nodes/{NODE.name}"))["metadata"]["annotations"]
    assert annotations["hami.io/node-enforcement"].endswith("compute: MPS, by a namespace for each container")

    await node.cluster.delete_pod("p")
    await node.until_empty()


async def test_namespaces_are_made_again_when_the_daemon_was_killed(node: MpsNode) -> None:
    """The Pod that ran meanwhile has an Event, and the next one has its part."""
    await node.until_empty()
    await node.cluster.create(a_tenants_pod("p", HOLD))
    await node.line("allocated", "p")
    before, namespaces = daemon_pid(node.pipes), node.namespaces()
    await node.cluster.pod_in_phase("p", "Running")
    os.kill(before, signal.SIGKILL)

    found = await node.event("p", "ComputeLimitRestored")

    assert f"MPS had lost its namespace and has it again, with {CORES} %" in found["message"]
    assert namespaces == node.namespaces()
    assert before != daemon_pid(node.pipes)
    await node.cluster.delete_pod("p")
    await node.start("q", BUSY)
    assert abs(CORES - await node.part("q")) <= TOLERANCE


async def test_namespaces_stay_or_are_made_again_when_the_plugin_was_killed(node: MpsNode) -> None:
    """The daemon outlives the plugin where control groups have version 2. Elsewhere a runtime ends it, too."""
    await node.until_empty()
    await node.cluster.create(a_tenants_pod("p", HOLD))
    await node.line("allocated", "p")
    await node.cluster.pod_in_phase("p", "Running")
    [before] = node.namespaces()
    await node.cluster.kill(PLUGIN)
    await node.cluster.restart(PLUGIN)

    await eventually(lambda: {before} == node.namespaces(), "the namespace is there", SECONDS)
    # A program that has lost its server may hold the device.
    await node.cluster.delete_pod("p")
    await node.start("q", BUSY)
    assert abs(CORES - await node.part("q")) <= TOLERANCE
