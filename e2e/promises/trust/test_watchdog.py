"""
A container that uses a device otherwise than granted is named on the Node and on its Pod, and an honest one never is.
"""

import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from hamicommon.model import Object
from harness.cluster import Cluster, ClusterOf, Settings
from harness.clusters import embedded
from harness.clusters.embedded import EmbeddedCluster
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import CGROUPS, FIRST_DRIVER_WITH_LIMITS, FakeDriver, FakeNode
from testbed.driver.memory_limits import limit_memory
from testbed.driver.native_cdi import write_driver
from testbed.folders import short_folder
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only
"""On the real cluster the fake driver lists pids of the containers' own namespaces, which no driver does."""

NODE = FakeNode.of("node-watched", "NVIDIA A100-SXM4-40GB", 40960, 2)
MONITOR = f"monitor-{NODE.name}"
DEADLINE_SECONDS = 60.0
HONEST_ROUNDS = 15
"""Rounds of a second each."""

BESIDE_EACH_OTHER = """
while true; do
  for seconds in 0.1 0.5 1; do gpu-hold --mib 50 --seconds $seconds & done
  wait
done
"""
FORKS = """
import os
from workloads.gpu_hold import main
while os.fork():
    os.wait()
main(["--mib=50", "--seconds=1"])
"""
WITHOUT_LIBRARY = "unset LD_PRELOAD; mount --bind /dev/null /etc/ld.so.preload; exec gpu-hold --mib"
SHARE: dict[str, Any] = {"gpu": 1, "gpumem": 1000}
ALL_DEVICES = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


@pytest_asyncio.fixture(loop_scope="session")
async def watched(cluster_of: ClusterOf) -> AsyncIterator[Cluster]:
    """A cluster with one Node, whose monitor knows the containers of processes and reads the driver each second."""
    async with cluster_of((NODE,), Settings()) as cluster:
        assert isinstance(cluster, EmbeddedCluster)
        await watch(cluster, MONITOR, cluster.folder / NODE.name)
        yield cluster


async def watch(cluster: EmbeddedCluster, part: str, kubelet_root: Path, *flags: str) -> None:
    """Start the monitor *part* again as the one that knows the containers below *kubelet_root*."""
    monitor = cluster.processes[part]
    monitor.kill()
    program = Path(__file__).with_name("monitor_of_shims.py")
    monitor.argv = [sys.executable, str(program), *monitor.argv[1:], "--feedback-interval=1s", *flags]
    monitor.environment = {**monitor.environment, "KUBELET_ROOT": str(kubelet_root)}
    await cluster.restart(part)


def a_shell(name: str, script: str, **limits: Any) -> Object:
    """Return a Pod that runs *script*."""
    return a_pod(name, command=("sh", "-c", script), **limits)


async def samples(cluster: Cluster, name: str, part: str = MONITOR) -> list[tuple[dict[str, str], float]]:
    """Return labels and value of each sample of the monitor with this *name*."""
    families = text_string_to_metric_families(await cluster.metrics(part))
    return [(one.labels, one.value) for family in families for one in family.samples if one.name == name]


async def named(cluster: Cluster, part: str = MONITOR) -> set[tuple[str, str]]:
    """Return Pod and kind of each finding."""
    shown = await samples(cluster, "hami_monitor_watchdog_findings", part)
    return {(labels["pod"], labels["kind"]) for labels, _ in shown}


async def rounds(cluster: Cluster) -> float:
    """Return how many rounds the monitor has ended."""
    [(_, value)] = await samples(cluster, "hami_monitor_rounds_total")
    return value


async def test_only_containers_outside_their_grants_are_named(watched: Cluster) -> None:
    """Each with its kind, beside containers that start, fork and restart processes all the time."""
    honest = [
        a_shell("restarts", "exec gpu-hold --mib 50 --seconds 0.5", **SHARE),
        a_shell("starts", BESIDE_EACH_OTHER, **SHARE),
        a_pod("forks", command=("python3", "-c", FORKS), **SHARE),
        a_pod("fills", command=("gpu-hold", "--mib", "800"), **SHARE),
    ]
    uninvited = a_pod("uninvited", spec={"nodeName": NODE.name})
    uninvited["spec"]["containers"][0]["env"] = ALL_DEVICES
    outside = [
        (a_shell("bypass", f"{WITHOUT_LIBRARY} 100", **SHARE), {"library-not-loaded": "LibraryNotLoaded"}),
        (
            a_shell("greedy", f"{WITHOUT_LIBRARY} 3000", **SHARE),
            {"library-not-loaded": "LibraryNotLoaded", "memory-above-grant": "MemoryAboveGrant"},
        ),
        (uninvited, {"device-not-granted": "DeviceNotGranted"}),
    ]
    expected = {(pod["metadata"]["name"], kind) for pod, kinds in outside for kind in kinds}

    for pod in (*honest, *(pod for pod, _ in outside)):
        await watched.create(pod)

    async def all_named() -> bool:
        return await named(watched) >= expected

    await eventually(all_named, f"{expected} are named", DEADLINE_SECONDS)
    last = await rounds(watched) + HONEST_ROUNDS

    async def enough() -> bool:
        return await rounds(watched) >= last

    await eventually(enough, f"{HONEST_ROUNDS} more rounds", 4 * DEADLINE_SECONDS)
    assert expected == await named(watched)
    found = await samples(watched, "hami_monitor_watchdog_found_total")
    assert Counter(kind for _, kind in expected) == Counter({labels["kind"]: int(value) for labels, value in found})
    for pod, kinds in outside:
        name = pod["metadata"]["name"]
        events = [event for event in await watched.events(name) if event["source"].get("component") == "hami-monitor"]
        assert sorted(kinds.values()) == sorted(event["reason"] for event in events)


@pytest.mark.breaks("environment", "the kubelet starts a container with a planted grant and without its devices")
async def test_container_that_never_got_its_devices_is_named(watched: Cluster) -> None:
    """The kubelet of a new Node does not know the resource: by the monitor, and by the plugin once it runs."""
    plugin, kubelet = f"plugin-{NODE.name}", f"kubelet-{NODE.name}"
    await watched.kill(plugin)
    await watched.kill(kubelet)
    (watched.folder / NODE.name / "device-plugins/kubelet_internal_checkpoint").unlink()
    await watched.api.delete(f"/api/v1/nodes/{NODE.name}")
    await watched.restart(kubelet)
    grant = {"hami.io/vgpu-devices-allocated": f"{NODE.gpus[0].uuid},NVIDIA,1000,0:;", "hami.io/vgpu-node": NODE.name}
    spec = {"nodeName": NODE.name, "schedulerName": "another"}
    await watched.create(a_pod("unasked", command=SLEEP, annotations=grant, spec=spec, **SHARE))
    await watched.pod_in_phase("unasked", "Running")

    async def is_named() -> bool:
        return await named(watched) == {("unasked", "without-devices")}

    await eventually(is_named, "the monitor names it", DEADLINE_SECONDS)
    await watched.restart(plugin)

    async def node_says_so() -> bool:
        events, _ = await watched.api.list("/api/v1/namespaces/default/events")
        found = [event["message"] for event in events if event["reason"] == "ContainerWithoutDevices"]
        return any(message.startswith(f"Pod {watched.namespace}/unasked, container main") for message in found)

    await eventually(node_says_so, "the plugin names it", DEADLINE_SECONDS)


LIMITING = FakeNode(
    "node-counts", FakeNode.of("node-counts", "Tesla T4", 16384, 1).gpus, driver=FIRST_DRIVER_WITH_LIMITS
)
UNTIL_RAISED = "until gpu-hold --mib 1100 --exit-on-refusal; do sleep 0.2; done"


@pytest_asyncio.fixture(loop_scope="session")
async def counting(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A cluster whose driver limits memory, and so counts it by control group; a folder stands for cgroup v2."""
    folder = short_folder()
    groups = f"--cgroup-root={folder / LIMITING.name / 'hardware' / CGROUPS}"
    hook = f"--limit-hook={embedded.NATIVE / 'hami-limit-hook'}"
    settings = Settings(
        plugin_flags=(*write_driver(tmp_path, embedded.FAKE_DRIVER), hook, groups, "--memory-enforcement=required")
    )
    async with embedded.running(folder, (LIMITING,), settings) as cluster:
        await watch(cluster, f"monitor-{LIMITING.name}", folder / LIMITING.name, groups)
        yield cluster


async def test_container_is_named_by_its_control_group(counting: EmbeddedCluster) -> None:
    """One whose processes the driver does not list, and one whose limit somebody has raised by less than 512 MiB."""
    part, hardware = f"monitor-{LIMITING.name}", counting.driver_folder(LIMITING.name)
    driver = FakeDriver(hardware)
    driver.fail(pynvml.NVML_ERROR_NOT_SUPPORTED, call="nvmlDeviceGetComputeRunningProcesses_v3")
    driver.fail(pynvml.NVML_ERROR_NOT_SUPPORTED, LIMITING.gpus[0].uuid, "nvmlDeviceGetComputeRunningProcesses_v2")
    await counting.create(a_pod("fills", command=("gpu-hold", "--mib", "800"), **SHARE))
    await counting.create(a_shell("hidden", f"{WITHOUT_LIBRARY} 800", **SHARE))
    demand = {"hami.io/enforcement": "driver"}
    await counting.create(a_pod("raised", command=("sh", "-c", UNTIL_RAISED), annotations=demand, **SHARE))
    await counting.log_line("cuMemAlloc", "raised")
    await counting.log_line("allocated", "hidden")

    uid = (await counting.pod("raised"))["metadata"]["uid"]
    [group] = (hardware / CGROUPS / f"kubepods/pod{uid}").glob("?" * 64)
    variables = counting.processes[part].environment
    limit_memory(group, {LIMITING.gpus[0].uuid: 1300 << 20}, variables)

    async def all_named() -> bool:
        return await named(counting, part) == {("raised", "memory-above-grant"), ("hidden", "not-in-region")}

    await eventually(all_named, "both are named", DEADLINE_SECONDS)
    [used] = [
        value
        for labels, value in await samples(counting, "hami_share_driver_memory_bytes", part)
        if labels["pod"] == "hidden"
    ]
    assert (800 << 20) < used < (1000 << 20)
    by_both = {(name, by) for name in ("fills", "hidden") for by in ("library", "driver")}
    limits = await samples(counting, "hami_share_memory_enforcement", part)
    assert {*by_both, ("raised", "driver")} == {(labels["pod"], labels["by"]) for labels, _ in limits}
