"""
Decide which devices stay in the inventory although the driver does not show them.

A device that has fallen off the bus keeps its UUID and index in the inventory, as unhealthy. So its Pods are still
explained, and the scheduler does not grant it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from hami_device_plugin.decide.inventory import SharingPolicy
from hamicommon.model import Device


def missing_devices(
    known: Sequence[Device],
    found: Collection[str],
    unread: Collection[int],
    faulty: Collection[str],
    policy: SharingPolicy,
) -> tuple[Device, ...]:
    """
    Return the *known* devices that are not among the UUIDs *found*, but stay.

    A device stays if the driver has one at its index that cannot be read, or if it had a fault before. Without either,
    it was taken out of the Node.
    """
    return tuple(
        replace(device, healthy=False)
        for device in known
        if device.id not in found
        and (device.index in unread or device.id in faulty)
        and device.id not in policy.excluded_uuids
        and device.index not in policy.excluded_indices
    )
