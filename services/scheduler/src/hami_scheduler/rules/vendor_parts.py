"""
What several modules of `vendors` share: devices that only a Node's capacity tells of, ways of sharing, groups.

May import the values. Must never import a vendor. Neighbours: `fit` applies the ways of sharing.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hami_scheduler.values.attempt import Attempt, Options, ShareOption
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import node_capacity, registered
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import FitRules
from hamicommon.model import Device
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors.amounts import saturated
from hamicommon.wire.errors import DecodeError

DEVICES_PER_NODE = 1024
"""More than any machine has; a larger number is a mistake."""
COUNTED = FitRules(amounts=lambda _use, _attempt: Amounts(1), counts_memory=False, counts_cores=False)
"""A share takes one replica."""


def counted_devices(node: Mapping[str, Any], count: int, name: str, like: Device) -> tuple[Device, ...]:
    """
    Return *count* equal devices of *node*, named `<node>-<name>-<index>`.

    Amounts above 32 bits are cut to 32 bits, because an allocation cannot say more.

    Raises:
        DecodeError: *count* is above DEVICES_PER_NODE.
    """
    if count > DEVICES_PER_NODE:
        raise DecodeError("capacity", f"{count} devices are more than the {DEVICES_PER_NODE} a Node may have")
    if count <= 0:
        return ()
    within = replace(
        like,
        count=saturated(like.count),
        memory_mib=saturated(like.memory_mib),
        core_percent=saturated(like.core_percent),
    )
    node_name = (node.get("metadata") or {}).get("name") or ""
    return tuple(replace(within, id=f"{node_name}-{name}-{index}", index=index) for index in range(count))


def devices_of_cores(
    node: Mapping[str, Any], resources: tuple[str, str], unit_mib: int, cores_per_device: int, name: str, type_: str
) -> tuple[Device, ...]:
    """
    Return one device per *cores_per_device* of the Node's compute, each with an equal part of its memory.

    *resources* are those of compute and of memory, which is in units of *unit_mib*.
    """
    cores, memory = (node_capacity(node, resource) for resource in resources)
    memory_mib = memory * unit_mib * cores_per_device // cores if cores else 0
    device = Device("", count=100, memory_mib=memory_mib, core_percent=cores_per_device, type=type_)
    return counted_devices(node, -(-cores // cores_per_device), name, device)


def read_whole_devices(node: Mapping[str, Any], key: str) -> Sequence[Device]:
    """Return the devices that annotation *key* of *node* lists, each with all of its compute."""
    return tuple(replace(device, core_percent=100) for device in registered(node, key))


def same_device(use: DeviceUse, attempt: Attempt) -> Reason | None:
    """Return a refusal if earlier containers of the Pod have another device."""
    return Reason.OTHER_DEVICE if attempt.earlier - {use.device.id} else None


def largest_groups_first(
    options: Options, count: int, group_of: Callable[[ShareOption], Hashable | None]
) -> Options | None:
    """
    Return *count* of *options*, those of the largest group first; None if they are too few.

    Of equal groups the one tried first wins. If there are exactly *count* options, all are taken. If there are more,
    those without a group are left out.
    """
    if len(options) <= count:
        return list(options) if len(options) == count else None
    groups: dict[Hashable, list[ShareOption]] = {}
    for option in options:
        group = group_of(option)
        if group is not None:
            groups.setdefault(group, []).append(option)
    by_size = sorted(groups.values(), key=len, reverse=True)
    chosen = [option for group in by_size for option in group][:count]
    return chosen if len(chosen) == count else None
