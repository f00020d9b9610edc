"""
Devices that no annotation lists: the Node says only how many there are, or how much of them all together.

Owns the names of such devices and the limit on their number. Neighbours: the modules of vendors without an inventory
of their own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hamicommon.amounts import saturated
from hamicommon.model import Device
from hamicommon.wire.errors import DecodeError

DEVICES_PER_NODE = 1024
"""More than any machine has; a larger number is a writer's slip."""


def counted_devices(node: Mapping[str, Any], count: int, name: str, like: Device) -> tuple[Device, ...]:
    """
    Return *count* devices of *node* that are *like* one another, called `<node>-<name>-<index>`.

    A capacity has no limit. Where it says more than 32 bits of something, a device has what 32 bits hold: a Pod cannot
    be told of more.

    Raises DecodeError: there are too many to be true.
    """
    if count > DEVICES_PER_NODE:
        raise DecodeError("capacity", f"{count} devices are more than the {DEVICES_PER_NODE} a Node may have")
    within = replace(
        like,
        count=saturated(like.count),
        memory_mib=saturated(like.memory_mib),
        core_percent=saturated(like.core_percent),
    )
    node_name = (node.get("metadata") or {}).get("name") or ""
    return tuple(replace(within, id=f"{node_name}-{name}-{index}", index=index) for index in range(count))
