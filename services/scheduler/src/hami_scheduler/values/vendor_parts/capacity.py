"""
Devices that no annotation lists: the Node reports only their number, or their sum of compute and memory.

Owns the names of such devices and the limit on their number. Neighbours: the vendors without an inventory annotation.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hamicommon.amounts import saturated
from hamicommon.model import Device
from hamicommon.wire.errors import DecodeError

DEVICES_PER_NODE = 1024
"""More than any machine has; a larger number is a mistake."""


def counted_devices(node: Mapping[str, Any], count: int, name: str, like: Device) -> tuple[Device, ...]:
    """
    Return *count* equal devices of *node*, named `<node>-<name>-<index>`.

    Amounts above 32 bits are cut to 32 bits, because an allocation cannot hold more.

    Raises:
        DecodeError: *count* is above DEVICES_PER_NODE.
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
