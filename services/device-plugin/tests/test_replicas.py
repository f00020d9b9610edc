"""
The kubelet's device IDs.
"""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, T4, PluginProcess, a_node, a_pod, needs_fake_driver
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.adapters.kubelet import list_message
from hami_device_plugin.decide.inventory import FoundDevice, SharingPolicy, inventory, with_health
from hami_device_plugin.decide.replicas import limits
from hami_device_plugin.decide.replicas.ids import NVIDIA, SEPARATORS, Replica, device_of_replica, replicas
from hamicommon.model import Device, MigPlacement, MigProfile

UUIDS = ("GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8", "GPU-00000000-0000-0000-0000-000000000001")


def test_replicas_carry_health_and_on_request_the_numa_node() -> None:
    """The kubelet aligns by NUMA node only if that is configured."""
    policy = SharingPolicy(split_count=1)
    found = [FoundDevice("GPU-0", 0, "T4", 2**30, numa=1), FoundDevice("GPU-1", 1, "T4", 2**30)]
    devices = with_health(inventory(found, policy), frozenset({"GPU-1"}))

    assert (Replica("GPU-0-0", True), Replica("GPU-1-0", False)) == replicas(devices, policy)
    assert (Replica("GPU-0-0", True, 1), Replica("GPU-1-0", False, 0)) == replicas(
        devices, SharingPolicy(split_count=1, is_numa_reported=True)
    )


@pytest.mark.property
@given(
    spelling=st.sampled_from(sorted(SEPARATORS)),
    held=st.sets(st.sampled_from([f"{uuid}{sign}{n}" for uuid in UUIDS for sign in ("-", "::") for n in range(4)])),
    before=st.sampled_from(sorted(SEPARATORS)),
)
def test_held_replicas_keep_their_spelling_and_their_number(spelling: str, held: set[str], before: str) -> None:
    """Each device has as many distinct IDs as replicas, every one names the device, and no held replica vanishes."""
    devices = inventory([FoundDevice(uuid, n, "T4", 2**30) for n, uuid in enumerate(UUIDS)], SharingPolicy(3))
    by_one_spelling = {replica for replica in held if ("::" in replica) == (before == NVIDIA)}
    listed = [each.id for each in replicas(devices, SharingPolicy(3, spelling=spelling), by_one_spelling)]

    assert [uuid for uuid in UUIDS for _ in range(3)] == [device_of_replica(replica) for replica in listed]
    assert 6 == len(set(listed))
    assert {replica for replica in by_one_spelling if replica[-1] != "3"} <= set(listed)
    assert all(SEPARATORS[spelling] in replica[-3:] for replica in set(listed) - by_one_spelling)


@needs_fake_driver
async def test_node_whose_spelling_changes_serves_the_pods_of_both(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """A Pod of the former spelling restarts, new Pods get the new one, and a freed replica changes."""
    api.put("nodes", a_node())
    for pod in ("old", "new"):
        api.put("pods", a_pod(pod, f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-old", "old", "main", f"{A100}-1")
        await kubelet.pre_start(f"{A100}-1")
    async with PluginProcess(host, api, kubelet, "--replica-ids=nvidia") as plugin:
        await plugin.until(lambda: f"{T4}::0" in kubelet.devices)
        assert {f"{A100}::0", f"{A100}-1", f"{A100}::2", *(f"{T4}::{n}" for n in range(3))} == set(kubelet.devices)
        await kubelet.pre_start(f"{A100}-1")
        assert [f"{A100}::0"] == await kubelet.preferred([f"{T4}::0", f"{A100}::0"], 1)
        answer = await kubelet.allocate("uid-new", "new", "main", f"{A100}::0")
        await kubelet.pre_start(f"{A100}::0")
        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]

        kubelet.forget("uid-old")
        kubelet.write_checkpoint()
        plugin.process.send_signal(signal.SIGHUP)
        await plugin.until(lambda: f"{A100}::1" in kubelet.devices and f"{A100}-1" not in kubelet.devices)


def a_list_of(count: int, device_count: int, spelling: str) -> int:
    """Return the bytes of the message that the kubelet gets."""
    policy = SharingPolicy(split_count=count, spelling=spelling, is_numa_reported=True)
    devices = [
        Device(
            id=f"GPU-{number:08d}-3a71-a5e7-2235-eb9c1bd980a8",
            count=count,
            memory_mib=1,
            core_percent=100,
            type="NVIDIA T4",
            healthy=False,
            numa=1,
        )
        for number in range(device_count)
    ]
    size: int = list_message(replicas(devices, policy)).ByteSize()
    return size


@pytest.mark.parametrize("spelling", ["hami", "nvidia"])
@pytest.mark.parametrize("device_count", [1, 8, 16])
def test_the_most_replicas_are_a_list_that_the_kubelet_reads(device_count: int, spelling: str) -> None:
    """It fits with every device sick and on a NUMA node, and a tenth more would not."""
    most = limits.most_replicas(device_count, spelling)

    assert a_list_of(most, device_count, spelling) <= limits.LIST_BYTES
    assert a_list_of(most * 11 // 10, device_count, spelling) > limits.LIST_BYTES


def test_replicas_and_profiles_that_nobody_reads_are_named_with_the_number() -> None:
    """The sentence has what would be right."""
    gpu = Device(id="GPU-a", count=10, memory_mib=1, core_percent=100, type="NVIDIA T4")
    profile = MigProfile("1g.5gb", 4864, 14, 1, tuple(MigPlacement(start, 1) for start in range(7)))
    many = replace(gpu, mig_profiles=(profile,) * 2000)

    assert [] == list(limits.problems([gpu], SharingPolicy(split_count=59918)))
    assert [] == list(limits.problems([], SharingPolicy(split_count=10**9)))
    [replicas_of_two] = limits.problems([gpu, gpu], SharingPolicy(split_count=30000))
    assert "30000 replicas of each of 2 devices" in replicas_of_two
    assert "write at most 29959" in replicas_of_two
    [too_long] = limits.problems([many], SharingPolicy(split_count=10))
    assert too_long.startswith("nvidia.migProfileAllowlist: the inventory of 1 devices has ")
