"""
A Pod gets a MIG instance by a ResourceClaim, on a Node of kind `dra` in mode `mig`.

kube-scheduler chooses the place by the counters of the GPU, the plugin makes the instance, and what the container sees
is asked of CUDA.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
import yaml

from controlplane import nvidia
from hamicommon.dra.grants import CLAIMS, RECORDS
from hamicommon.dra.names import DRIVER, OCCUPIED_TAINT, PARTITION_CLASS
from hamicommon.model import MigAllocation
from hamicommon.runtime.host.claim_records import read_records
from harness.claims import (
    API,
    create_claims,
    create_template,
    delete_slices,
    is_new_enough,
    label_kind,
    slices,
    with_claim,
)
from harness.cluster import ROOT, Settings
from harness.clusters.real import RealCluster
from harness.invariants import MIB, samples
from harness.isolation import own_namespace
from harness.manifests import a_pod
from promises.shares.test_mig_native_cdi import A100, MIG, SHOW, instances, restart_plugin, sight
from testbed.driver.hardware import FakeNode
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

NODE = "node-mig"
WAIT_SECONDS = 90
EXAMPLE = ROOT / "examples/dra/mig-instance/pod.yaml"
SMALL, LARGE = "1g.10gb", "7g.79gb"
"""One memory slice of the GPU, and the whole GPU, as the chart's allowlist has them."""
SMALL_MIB, PLACES = 9728, 7
"""Memory of a small instance, and how many fit."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mig_node(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """A cluster whose Pods all run on one Node of kind `dra`, whose one GPU is in mode `mig`."""
    if not is_new_enough(real_cluster.control_plane.kubernetes):
        pytest.skip("claims take parts of a device since Kubernetes 1.36")
    node = replace(FakeNode.of(NODE, A100, 81920, 1), kind=nvidia.PLAIN.name, shows_mig=True)
    config = {"nodeconfig": [{"name": NODE, "operatingmode": "mig"}]}
    settings = Settings(driver_root=nvidia.DRIVER_ROOT, values={"devicePlugin.nodeConfig": config, "dra.enabled": True})
    async with real_cluster.reshaped((node,), settings) as cluster:
        await label_kind(cluster, NODE, "dra")
        await eventually(lambda: slices(cluster), "the Node's ResourceSlices exist", WAIT_SECONDS)
        yield cluster
    await real_cluster.deploy()
    await delete_slices(real_cluster)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(mig_node: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with no Pods and no instances after the test."""
    async with own_namespace(mig_node):
        for profile in (SMALL, LARGE):
            await _create_template(mig_node, profile)
        yield mig_node
        await mig_node.delete_all_pods()
        await eventually(lambda: _has_instances(mig_node, 0), "no instance is left", WAIT_SECONDS)


async def _create_template(cluster: RealCluster, profile: str) -> None:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].profile == "{profile}"'}}
    await create_template(cluster, profile, deviceClassName=PARTITION_CLASS, selectors=[selector])


async def _create(cluster: RealCluster, name: str, profile: str) -> None:
    await cluster.create(with_claim(a_pod(name, command=SHOW), profile))


async def _has_instances(cluster: RealCluster, count: int) -> bool:
    return count == len(instances(cluster))


async def _start(cluster: RealCluster, name: str, profile: str) -> str:
    """Create a Pod with an instance, and return what its container sees."""
    await _create(cluster, name, profile)
    return await _sees(cluster, name)


async def _sees(cluster: RealCluster, name: str) -> str:
    await cluster.pod_in_phase(name, "Running", WAIT_SECONDS)
    return await cluster.log_line("sees:", name)


async def _waits(cluster: RealCluster, name: str) -> None:
    """Wait until kube-scheduler has found no place for a Pod; its claim has no device then."""

    async def is_refused() -> bool:
        conditions = (await cluster.pod(name))["status"].get("conditions", [])
        return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)

    await eventually(is_refused, f"kube-scheduler has no place for {name}", WAIT_SECONDS)
    assert [] == await _allocated(cluster, name)


async def _allocated(cluster: RealCluster, pod: str) -> list[tuple[str, str]]:
    """Return the UID of the claim of *pod* and the device, for each result of its allocation."""
    claims, _ = await cluster.api.list(f"{API}/namespaces/{cluster.namespace}/resourceclaims")
    return [
        (claim["metadata"]["uid"], result["device"])
        for claim in claims
        if claim["metadata"]["ownerReferences"][0]["name"] == pod
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    ]


async def _instance(cluster: RealCluster, pod: str) -> MigAllocation:
    """Return the instance that the plugin has recorded for the claim of *pod*; it is where kube-scheduler put it."""
    [(uid, device)] = await _allocated(cluster, pod)
    records, _ = read_records(cluster.vgpu_folder(NODE) / CLAIMS / RECORDS)
    [result] = records[uid].results
    assert result.instance is not None
    assert f"hami-mig-0-{result.instance.profile.split('.')[0]}-{result.instance.placement.start}" == device
    return result.instance


async def _are_shown(cluster: RealCluster, promised: set[str]) -> bool:
    """Return whether the monitor shows the instances *promised*, by UUID, and the scheduler counts their memory."""
    monitor = samples(await cluster.metrics(f"monitor-{NODE}"))
    shown = {labels["mig_uuid"] for labels, _ in monitor["hami_mig_device_info"]}
    findings = [labels for labels, value in monitor["hami_monitor_watchdog_findings"] if value]
    scheduler = samples(await cluster.metrics("scheduler"))
    counted = [value for _, value in scheduler["hami_scheduler_claim_memory_bytes"]]
    unknown = [value for _, value in scheduler["hami_scheduler_unknown_claim_devices"]]
    is_counted = counted == [SMALL_MIB * MIB] * len(promised) and unknown == [0]
    return shown == promised and is_counted and not findings


async def test_container_has_exactly_the_instance_of_its_claim(cluster: RealCluster) -> None:
    """Its device files are those of the instance alone. A plugin that is killed finds all of them again."""
    lines = {name: await _start(cluster, name, SMALL) for name in "pq"}

    found = {name: await _instance(cluster, name) for name in lines}
    made = {str(one.mig_uuid): one.gpu_instance_id for one in found.values()}
    assert instances(cluster) == made
    for name, one in found.items():
        number = one.gpu_instance_id or 0
        assert sight(nvidia.PLAIN, f"{A100} MIG {SMALL}", SMALL_MIB, str(one.mig_uuid), number) == lines[name]
    await eventually(lambda: _are_shown(cluster, set(made)), "monitor and scheduler show both", WAIT_SECONDS)

    await restart_plugin(cluster)
    await _start(cluster, "r", SMALL)
    assert made.items() < instances(cluster).items()
    assert 3 == len(instances(cluster))


async def test_whole_gpu_and_a_part_of_it_are_never_given_together(cluster: RealCluster) -> None:
    """The next Pod gets the place once the last one has ended, and the instance that was there is gone."""
    small = await _start(cluster, "small", SMALL)
    await _create(cluster, "whole", LARGE)
    await _waits(cluster, "whole")
    assert 1 == len(instances(cluster))

    await cluster.delete_pod("small")
    whole = await _sees(cluster, "whole")
    [only] = instances(cluster)
    assert only == (await _instance(cluster, "whole")).mig_uuid
    await _create(cluster, "late", SMALL)
    await _waits(cluster, "late")
    assert [only] == [*instances(cluster)]

    await cluster.delete_pod("whole")
    late = await _sees(cluster, "late")
    assert (await _instance(cluster, "late")).mig_uuid in instances(cluster)
    assert [f"1 {A100} MIG 1g.", f"1 {A100} MIG 7g.", f"1 {A100} MIG 1g."] == [
        line.removeprefix("sees: ")[: len(f"1 {A100} MIG 1g.")] for line in (small, whole, late)
    ]


async def test_pods_get_all_places_of_a_gpu_and_each_place_once(cluster: RealCluster) -> None:
    """Seven of eight run; the last gets the place of one that has ended."""
    names = [f"p{number}" for number in range(PLACES + 1)]
    for name in names:
        await _create(cluster, name, SMALL)
    await eventually(lambda: _has_instances(cluster, PLACES), "every place has an instance", WAIT_SECONDS)
    running = [name for name in names if await _allocated(cluster, name)]
    lines = [await _sees(cluster, name) for name in running]
    [waiting] = set(names) - set(running)
    await _waits(cluster, waiting)

    places = [(await _instance(cluster, name)).placement.start for name in running]
    assert [*range(PLACES)] == sorted(places)
    assert PLACES == len(set(lines))

    await cluster.delete_pod(running[0])
    await _sees(cluster, waiting)
    assert places[0] == (await _instance(cluster, waiting)).placement.start
    assert PLACES == len(instances(cluster))


async def test_place_of_a_pod_from_before_is_closed_for_claims_until_it_has_ended(cluster: RealCluster) -> None:
    """While the Node changes its kind, the Pod keeps the instance that HAMi's annotation promises."""
    await label_kind(cluster, NODE, None)
    await cluster.node_ready(NODE, WAIT_SECONDS)
    await cluster.create(a_pod("before", annotations=MIG, command=SHOW, gpu=1, gpumem=5000))
    await _sees(cluster, "before")
    [kept] = instances(cluster)
    await label_kind(cluster, NODE, "dra")
    await eventually(lambda: _occupied(cluster), "the place is closed", WAIT_SECONDS)

    await _create(cluster, "whole", LARGE)
    await _waits(cluster, "whole")
    await _start(cluster, "small", SMALL)
    assert {kept, (await _instance(cluster, "small")).mig_uuid} == instances(cluster).keys()

    await cluster.delete_pod("small")
    await cluster.delete_pod("before")
    await _sees(cluster, "whole")
    assert [(await _instance(cluster, "whole")).mig_uuid] == [*instances(cluster)]


async def _occupied(cluster: RealCluster) -> list[str]:
    """Return the devices of the slices that something of no claim stands in the place of."""
    return [
        device["name"]
        for found in await slices(cluster)
        for device in found["spec"].get("devices", [])
        if any(taint["key"] == OCCUPIED_TAINT for taint in device.get("taints", []))
    ]


async def test_example_gets_what_it_says(cluster: RealCluster) -> None:
    """The manifest is applied as it is."""
    template, pod = yaml.safe_load_all(EXAMPLE.read_text())
    await create_claims(cluster, template)
    await cluster.create(pod)

    assert "allocated 1000 MiB of 19968 MiB visible" == await cluster.log_line("allocated", pod["metadata"]["name"])
    assert "2g.20gb" == (await _instance(cluster, pod["metadata"]["name"])).profile
