"""
A container gets exactly the share it requests: in the grant, in its environment, in CUDA and NVML, and enforced.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from harness.cluster import ROOT, Cluster, ClusterOf, Settings
from harness.manifests import SLEEP, a_container, a_pod
from testbed.driver.hardware import FakeNode
from testbed.waiting import eventually


@pytest_asyncio.fixture(loop_scope="session")
async def mixed(cluster_of: ClusterOf) -> AsyncIterator[Cluster]:
    """A cluster with one Node of two unequal devices, the smaller first."""
    small = FakeNode.of("node-small", "Tesla T4", 16384, 1).gpus
    large = FakeNode.of("node-large", "NVIDIA A100-SXM4-40GB", 40960, 1).gpus
    async with cluster_of((FakeNode("node-mixed", small + large),), Settings()) as cluster:
        yield cluster


async def test_share_in_mib_and_percent_is_granted_and_in_the_environment(cluster: Cluster) -> None:
    """gpu: 1, gpumem: 3000, gpucores: 25 arrive as exactly that."""
    await cluster.create(a_pod("p", gpu=1, gpumem=3000, gpucores=25))

    pod = await cluster.pod_in_phase("p", "Running")

    [[share]] = await cluster.granted(pod)
    environ = cluster.environment(pod)
    assert (3000, 25) == (share.memory_mib, share.core_percent)
    assert "3000m" == environ["CUDA_DEVICE_MEMORY_LIMIT_0"]
    assert "25" == environ["CUDA_DEVICE_SM_LIMIT"]
    assert share.uuid == environ["HAMI_DEVICE_UUIDS"]


async def test_container_sees_its_share_as_the_size_of_the_device(cluster: Cluster) -> None:
    """CUDA and NVML both report 3000 MiB on a card of 16 or 40 GiB."""
    await cluster.create(a_pod("p", command=("gpu-hold", "--mib", "1000"), gpu=1, gpumem=3000))

    line = await cluster.log_line("allocated", "p")

    assert "allocated 1000 MiB of 3000 MiB visible" == line


async def test_container_loads_the_library_by_itself(cluster: Cluster) -> None:
    """The linker's preload file names the library, inside the container only."""
    show = "cat /etc/ld.so.preload; grep -m 1 -o '[^ ]*libvgpu[^ ]*' /proc/self/maps; sleep infinity"
    await cluster.create(a_pod("p", command=("sh", "-c", show), gpu=1, gpumem=3000))

    named = await cluster.log_line("/libvgpu.so", "p")

    async def mapped() -> bool:
        return named in (await cluster.log("p")).splitlines()[1:]

    await eventually(mapped, f"{named} is mapped")


async def test_allocation_beyond_the_share_fails_and_the_neighbour_continues(cluster: Cluster) -> None:
    """The device has enough memory, the share has not."""
    await cluster.create(a_pod("good", gpu=1, gpumem=3000))
    await cluster.log_line("allocated", "good")
    await cluster.create(
        a_pod("greedy", command=("gpu-hold", "--mib", "1000", "--then-mib", "5000"), gpu=1, gpumem=3000)
    )

    line = await cluster.log_line("cuMemAlloc", "greedy")

    good = await cluster.pod_in_phase("good", "Running")
    assert "CUDA_ERROR_OUT_OF_MEMORY" in line
    assert 0 == good["status"]["containerStatuses"][0]["restartCount"]


async def test_percentage_is_of_the_device_that_is_chosen(cluster: Cluster) -> None:
    """Half of a T4 is 8192 MiB."""
    await cluster.create(a_pod("p", annotations={"nvidia.com/use-gputype": "T4"}, gpu=1, gpumem_percentage=50))

    pod = await cluster.pod_in_phase("p", "Running")

    [[share]] = await cluster.granted(pod)
    assert 8192 == share.memory_mib


async def test_two_devices_in_one_container_are_different_and_both_limited(cluster: Cluster) -> None:
    """Memory and cores are per device."""
    await cluster.create(a_pod("p", gpu=2, gpumem=2000, gpucores=10))

    pod = await cluster.pod_in_phase("p", "Running")

    [[first, second]] = await cluster.granted(pod)
    environ = cluster.environment(pod)
    assert first.uuid != second.uuid
    assert ("2000m", "2000m") == (environ["CUDA_DEVICE_MEMORY_LIMIT_0"], environ["CUDA_DEVICE_MEMORY_LIMIT_1"])


async def test_each_of_two_unequal_devices_has_its_own_limit(mixed: Cluster) -> None:
    """
    Half of each is another amount. CUDA and NVML show both, and an allocation fails on the device that has less.

    A claim cannot ask for half. Without an amount it has the whole memory of each.
    """
    percent = 50 if mixed.gives_percentages else 100
    small_mib, large_mib = 16384 * percent // 100, 40960 * percent // 100
    hold = ("gpu-hold", "--mib", str(small_mib + 1000), "--all-devices", "--table")
    await mixed.create(a_pod("p", command=hold, gpu=2, gpumem_percentage=percent, gpucores=50))

    pod = await mixed.pod_in_phase("p", "Running")

    [shares] = await mixed.granted(pod)
    environ = mixed.environment(pod)
    assert {small_mib, large_mib} == {share.memory_mib for share in shares}
    limits = [environ[f"CUDA_DEVICE_MEMORY_LIMIT_{index}"] for index in range(2)]
    assert [f"{share.memory_mib}m" for share in shares] == limits
    for share in shares:
        assert f"{share.uuid} has {share.memory_mib} MiB" == await mixed.log_line(f"{share.uuid} has", "p")
        await mixed.log_line(f" MiB / {share.memory_mib} MiB", "p")
    await mixed.log_line(f"cuMemAlloc({small_mib + 1000} MiB): CUDA_ERROR_OUT_OF_MEMORY", "p")


async def test_every_container_of_a_pod_has_its_own_share(cluster: Cluster) -> None:
    """An init container, two containers with shares, and one that requests nothing and has no limit."""
    await cluster.apply(ROOT / "examples/share/many-containers/pod.yaml")

    pod = await cluster.pod_in_phase("many-containers", "Running")

    memory_mib = [[share.memory_mib for share in shares] for shares in await cluster.granted(pod)]
    proxy = cluster.environment(pod, "proxy")
    assert [[1000], [4000], [2000], []] == memory_mib
    assert "4000m" == cluster.environment(pod, "train")["CUDA_DEVICE_MEMORY_LIMIT_0"]
    assert "2000m" == cluster.environment(pod, "serve")["CUDA_DEVICE_MEMORY_LIMIT_0"]
    assert not [name for name in proxy if name.startswith("CUDA_DEVICE_MEMORY")]


async def test_whole_device_is_exclusive(cluster: Cluster) -> None:
    """gpu: 1 alone takes all memory and all cores, so no other share fits."""
    only_a100 = {"nvidia.com/use-gputype": "A100"}
    await cluster.create(a_pod("one", annotations=only_a100, gpu=1))
    await cluster.create(a_pod("two", annotations=only_a100, gpu=1))
    first = await cluster.pod_in_phase("one", "Running")
    second = await cluster.pod_in_phase("two", "Running")

    [[one]], [[two]] = await cluster.granted(first), await cluster.granted(second)

    assert one.uuid != two.uuid
    assert {(40960, 100)} == {(share.memory_mib, share.core_percent) for share in (one, two)}


async def test_pod_without_a_request_is_unchanged(cluster: Cluster) -> None:
    """It has no scheduler, annotation, environment or volume of ours, byte for byte."""
    # A token would be in a volume with another name each time.
    manifest = a_pod("plain", containers=[a_container(command=SLEEP)], spec={"automountServiceAccountToken": False})
    made = await cluster.create({**manifest, "metadata": {"name": "plain", "labels": {"hami.io/webhook": "ignore"}}})
    await cluster.delete_pod("plain")
    again = await cluster.create({**manifest, "metadata": {"name": "plain", "labels": {"not": "ours"}}})

    pod = await cluster.pod_in_phase("plain", "Running")

    assert made["spec"] == again["spec"]
    assert "default-scheduler" == pod["spec"]["schedulerName"]
    assert not [key for key in pod["metadata"].get("annotations", {}) if "hami.io" in key]


@pytest.mark.parametrize("limits", [{"gpumem": 3000}, {"gpucores": 30}, {"gpumem_percentage": 10}])
async def test_share_without_a_count_is_of_one_device(cluster: Cluster, limits: dict[str, Any]) -> None:
    """Memory or cores alone mean one device."""
    await cluster.create(a_pod("p", **limits))

    pod = await cluster.pod_in_phase("p", "Running")

    [shares] = await cluster.granted(pod)
    assert 1 == len(shares)
