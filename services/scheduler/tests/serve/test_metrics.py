"""The metrics have HAMi's names, and each series once."""

from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.samples import Sample

from hami_scheduler.serve.listen.metrics import ClusterCollector, Observed
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.grant import Grant
from hamicommon.model import MigAllocation, MigPlacement
from hamicommon.pod.containers import ContainerKind

from ..support.api_server import ApiServer
from ..support.builders import a_cluster, a_device, a_grant, a_mig_device, a_node, a_pod, a_share, an_inventory
from ..support.service import running


def told_of(cluster: Cluster, *, has_legacy_names: bool) -> list[Sample]:
    """Return every sample of a scrape."""
    observed = Observed(dict, lambda: 0, lambda: 0)
    collector = ClusterCollector(lambda: cluster, observed, has_legacy_names=has_legacy_names, device_limit=100)
    return [sample for family in collector.collect() for sample in family.samples]


def test_free_room_has_series_by_shape_and_says_how_fragmented_it_is() -> None:
    """A device with 9000 of 16384 MiB has one half; only an idle one is whole. Closed and MIG devices have no room."""
    nodes = (
        a_node("n1", a_device("GPU-a"), a_device("GPU-b"), a_device("GPU-c", healthy=False), replicas=30),
        a_node("n2", a_device("GPU-d", count=1), a_mig_device("GPU-m"), replicas=8),
    )
    cluster = a_cluster(*nodes)
    cluster.ledger.put(a_grant("u", "n1", a_share("GPU-a", 7384)))
    cluster.ledger.put(a_grant("v", "n2", a_share("GPU-d", 1)))

    samples = {
        (
            sample.name.removeprefix("hami_scheduler_"),
            sample.labels.get("shape") or sample.labels.get("on"),
        ): sample.value
        for sample in told_of(cluster, has_legacy_names=False)
        if sample.name.startswith("hami_scheduler_free_")
    }

    assert {
        ("free_shares", "whole"): 1,
        ("free_shares", "half"): 3,
        ("free_shares", "quarter"): 6,
        ("free_shares", "eighth"): 12,
        ("free_memory_bytes", "idle"): 16384 * 2**20,
        ("free_memory_bytes", "shared"): 9000 * 2**20,
    } == samples


async def test_metrics_have_hamis_names(api: ApiServer, tmp_path: Path) -> None:
    """Both listeners serve them, with the old names beside the new where asked for."""
    api.put("pods", a_pod("bound", node="exact", allocated="GPU-a,NVIDIA,1000,30:;"))
    hard = {"limits.nvidia.com/gpumem": "5000"}
    api.put("resourcequotas", {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}})
    async with running(api, tmp_path, has_legacy_metrics=True) as scheduler:
        await scheduler.filter(api.pod("p"), "exact")
        _, text = await scheduler.get(scheduler.metrics_url + "/metrics")
        _, same = await scheduler.get(scheduler.url + "/metrics")

    device = 'device_index="0",device_type="NVIDIA A10",device_uuid="GPU-a",node="exact",zone="vGPU"'
    own = 'container_index="0",device_uuid="GPU-a",namespace="default",node="exact",pod="bound",zone="vGPU"'
    for line in (
        f"hami_gpu_memory_limit_bytes{{{device}}} 1.7179869184e+10",
        f"hami_gpu_core_limit_ratio{{{device}}} 100.0",
        f'hami_gpu_memory_allocated_bytes{{device_cores="100",{device}}} 2.097152e+09',
        f"hami_gpu_shared_count{{{device}}} 2.0",
        f"hami_gpu_core_allocated_ratio{{{device}}} 30.0",
        f"hami_node_gpu_memory_allocated_ratio{{{device}}} 0.1220703125",
        f"hami_vgpu_memory_allocated_bytes{{{own}}} 1.048576e+09",
        f"hami_vgpu_core_allocated_ratio{{{own}}} 30.0",
        'hami_resource_quota_used{limit="5000",namespace="default",quota_name="nvidia.com/gpumem",zone="vGPU"} 2000.0',
        'hami_resource_quota_limit{namespace="default",quota_name="nvidia.com/gpumem",zone="vGPU"} 5000.0',
        'hami_scheduler_filter_seconds_count{outcome="ok"} 1.0',
        "hami_scheduler_reservations 1.0",
        "hami_scheduler_ledger_drift_total 0.0",
    ):
        assert line in text
    assert "GPUDeviceMemoryLimit{" in text
    assert 'vGPUMemoryAllocated{containeridx="0",deviceuuid="GPU-a",nodename="exact",podname="bound"' in text
    assert "hami_build_info{" in text
    assert "hami_gpu_memory_limit_bytes" in same


def test_no_series_is_exported_twice() -> None:
    """Two instances of one device in one container are one series, with what they are together."""
    cluster = a_cluster()
    cluster.ledger.put_node(an_inventory("n1", a_mig_device("GPU-m")))
    cluster.ledger.put(a_grant("u", "n1", a_share("GPU-m", 4864, 14), a_share("GPU-m", 4864, 14)))
    found = [(one.name, tuple(one.labels.items())) for one in told_of(cluster, has_legacy_names=True)]
    values = {one.name: one.value for one in told_of(cluster, has_legacy_names=True) if "pod" in one.labels}

    assert len(found) == len(set(found))
    assert {"hami_vgpu_memory_allocated_bytes": 9728 * 2.0**20, "hami_vgpu_core_allocated_ratio": 28} == values


def test_share_of_an_ended_init_container_keeps_its_series() -> None:
    """It takes nothing of its device any more, but the Pod was granted it until it ends."""
    shares = {"NVIDIA": ((a_share("GPU-a"),), ())}
    kinds = (ContainerKind.INIT, ContainerKind.APP)
    cluster = a_cluster()
    cluster.ledger.put(Grant("u", "default", "p", "n1", kinds, shares, inits_are_done=True))
    values = {one.name: one.value for one in told_of(cluster, has_legacy_names=False) if "pod" in one.labels}

    assert {"hami_vgpu_memory_allocated_bytes": 1000 * 2.0**20, "hami_vgpu_core_allocated_ratio": 0} == values


def test_mig_instances_have_hamis_names() -> None:
    """The old name is the profile with the GPU instance's ID; what is only reserved is no instance yet."""
    reserved = MigAllocation(0, 0, "GPU-m", "2g.10gb", MigPlacement(2, 2))
    ready = replace(reserved, profile="1g.5gb", mig_uuid="MIG-1", gpu_instance_id=9, compute_instance_id=0)
    cluster = a_cluster()
    cluster.ledger.put_node(an_inventory("n1", a_mig_device("GPU-m", index=3)))
    cluster.ledger.put(a_grant("u", "n1", a_share("GPU-m"), mig=(reserved, ready)))
    for has_legacy_names, expected in (
        (True, ['nodeGPUMigInstance{deviceidx="3",deviceuuid="GPU-m",migname="1g.5gb-9",nodeid="n1",zone="vGPU"} 1.0']),
        (False, []),
    ):
        registry = CollectorRegistry()
        observed = Observed(dict, lambda: 0)
        collector = ClusterCollector(lambda: cluster, observed, has_legacy_names=has_legacy_names, device_limit=9)
        registry.register(collector)
        lines = generate_latest(registry).decode().splitlines()

        assert expected == [line for line in lines if line.startswith("nodeGPUMigInstance{")]
        assert 1 == len([line for line in lines if line.startswith("hami_node_gpu_mig_instance_info{")])
