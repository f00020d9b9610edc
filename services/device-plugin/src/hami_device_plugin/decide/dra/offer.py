"""
Decide what the Node's ResourceSlice says, and whether it has to be written.

Neighbours: `hamicommon.dra.slices` has the form, `serve.dra.slices` writes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hami_device_plugin.decide.health.condition import Condition
from hamicommon.dra.slices import Description, OfferedDevice, encode_slice
from hamicommon.model import Device, Object

NO_CAUSE = "unhealthy"
"""Why a device takes no shares if no fault of it is known: nobody can ask the driver."""


def offered_devices(
    devices: Sequence[Device], descriptions: Mapping[str, Description], conditions: Mapping[str, Condition]
) -> tuple[OfferedDevice, ...]:
    """
    Return *devices* as the slice has them, in the order of their numbers, which never changes.

    Devices without a description are left out: the driver did not answer for them when the plugin looked.
    """
    known = [(descriptions[device.id], device) for device in devices if device.id in descriptions]
    known.sort(key=lambda found: found[0].minor)
    return tuple(
        OfferedDevice(device, description, _faults(device, conditions.get(device.id, Condition())))
        for description, device in known
    )


def next_slice(
    node: Mapping[str, Any], devices: Sequence[OfferedDevice], present: Object | None, generation: int
) -> Object | None:
    """
    Return the slice to write in the place of *present*; None if that is right.

    *generation* is the highest that was seen. Each change has a higher one, by which readers know the newest.

    Raises:
        EncodeError: the devices do not fit into a slice, or the Node has no UID.
    """
    wanted = encode_slice(node, devices, generation + 1)
    if present is None:
        return wanted
    if _content(wanted) == _content(present):
        return None
    metadata = {key: present["metadata"][key] for key in ("name", "resourceVersion")}
    owners = {"ownerReferences": wanted["metadata"]["ownerReferences"]}
    return wanted | {"metadata": metadata | owners}


def _faults(device: Device, condition: Condition) -> tuple[str, ...]:
    if device.healthy:
        return ()
    return tuple(sorted(cause.value for cause in condition.faults)) or (NO_CAUSE,)


def _content(found: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what of a slice must be right: without its generation, and the times that the API server fills in."""
    spec = found["spec"]
    devices = [
        {**device, "taints": [{"key": taint["key"], "effect": taint["effect"]} for taint in device.get("taints") or ()]}
        for device in spec.get("devices") or ()
    ]
    owners = [owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()]
    pool = spec.get("pool") or {}
    return owners, devices, pool.get("name"), pool.get("resourceSliceCount"), spec.get("nodeName")
