"""
The kubelet's device IDs.
"""

from hami_device_plugin.decide.inventory import FoundDevice, SharingPolicy, inventory, with_health
from hami_device_plugin.decide.replicas.ids import Replica, replicas


def test_replicas_carry_health_and_on_request_the_numa_node() -> None:
    """The kubelet aligns by NUMA node only if that is configured."""
    policy = SharingPolicy(split_count=1)
    found = [FoundDevice("GPU-0", 0, "T4", 2**30, numa=1), FoundDevice("GPU-1", 1, "T4", 2**30)]
    devices = with_health(inventory(found, policy), frozenset({"GPU-1"}))

    assert (Replica("GPU-0-0", True), Replica("GPU-1-0", False)) == replicas(devices, policy)
    assert (Replica("GPU-0-0", True, 1), Replica("GPU-1-0", False, 0)) == replicas(
        devices, SharingPolicy(split_count=1, is_numa_reported=True)
    )
