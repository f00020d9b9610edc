"""
List the replicas that the kubelet gets, and read the device in a replica's ID.

The kubelet hands out IDs, so a device that several containers share has several. They are spelled as HAMi does, or as
NVIDIA's plugin does for time slicing, which dcgm-exporter understands.
Neighbours: `inventory` makes the devices, `kubelet` sends the list.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/rm/devices.go
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hami_device_plugin.decide.inventory import SharingPolicy, is_instance
from hamicommon.model import Device

HAMI, NVIDIA = "hami", "nvidia"
SEPARATORS = {HAMI: "-", NVIDIA: "::"}
"""What is between UUID and number, by spelling."""
UUID_DASHES = 5
"""Dashes in `GPU-<UUID>`; a replica ID has one more."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One device ID as the kubelet sees it."""

    id: str
    is_healthy: bool
    numa: int | None = None
    """None if the kubelet shall not align by it."""


def replicas(
    devices: Sequence[Device], policy: SharingPolicy, in_use: Collection[str] = frozenset()
) -> tuple[Replica, ...]:
    """
    Return the kubelet's list, one ID for each replica of each device.

    A replica *in_use* by a Pod keeps its spelling. After a reboot the kubelet rejects Pods whose IDs are not in the
    list, and it would count a replica under another spelling as free.

    >>> gpu = Device(id="GPU-a", count=2, memory_mib=1, core_percent=100, type="NVIDIA T4")
    >>> [replica.id for replica in replicas([gpu], SharingPolicy(split_count=2))]
    ['GPU-a-0', 'GPU-a-1']
    >>> [replica.id for replica in replicas([gpu], SharingPolicy(split_count=2, spelling="nvidia"), {"GPU-a-1"})]
    ['GPU-a::0', 'GPU-a-1']
    """
    return tuple(
        Replica(
            device.id if is_instance(device.id) else _spelled(device.id, number, policy.spelling, in_use),
            device.healthy,
            device.numa if policy.is_numa_reported else None,
        )
        for device in devices
        for number in range(max(device.count, policy.split_count) if device.mig_profiles else device.count)
    )


def device_of_replica(replica_id: str) -> str:
    """
    Return the UUID of the device that a replica belongs to.

    NVIDIA's IDs have `::` before the number, HAMi's a sixth dash.

    >>> device_of_replica("GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8-9")
    'GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8'
    >>> device_of_replica("GPU-7::3"), device_of_replica("GPU-42bacc-6")
    ('GPU-7', 'GPU-42bacc-6')
    """
    if "::" in replica_id:
        return replica_id.split("::", 1)[0]
    uuid, _, number = replica_id.rpartition("-")
    return uuid if uuid.count("-") == UUID_DASHES and number.isascii() and number.isdigit() else replica_id


def _spelled(uuid: str, number: int, spelling: str, in_use: Collection[str]) -> str:
    spelled = {name: f"{uuid}{separator}{number}" for name, separator in SEPARATORS.items()}
    wanted = spelled.pop(spelling)
    return wanted if wanted in in_use else next((other for other in spelled.values() if other in in_use), wanted)
