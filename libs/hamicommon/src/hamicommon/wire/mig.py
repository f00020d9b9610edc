"""
Which MIG instances a Pod was promised: the annotation `hami.io/vgpu-mig-allocations`, and the form before it.

2.10 writes a JSON list; the scheduler fills the first five fields, the device plugin adds the runtime identity once the
instance exists. 2.5 to 2.9 instead wrote `GPU-a[1-3]` as the UUID in the Pod's devices: geometry 1 of the model's
list, slot 3 of that geometry.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/mig_allocations.go
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from hamicommon.model import MigAllocation, MigPlacement
from hamicommon.wire import json_reader as json
from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.json_writer import compact
from hamicommon.wire.strconv import parse_int

PLACEMENT: Final = json.struct(
    MigPlacement(0, 0),
    {
        "start": ("start", json.whole_number(32, signed=False)),
        "size": ("size", json.whole_number(32, signed=False)),
    },
)
"""How a placement is read; the inventory has them too."""
_INSTANCE: Final = json.optional(json.whole_number(32, signed=False))
_ALLOCATIONS: Final = json.array(
    json.struct(
        MigAllocation(0, 0, "", "", MigPlacement(0, 0)),
        {
            "containerIndex": ("container_index", json.whole_number(64)),
            "deviceIndex": ("device_index", json.whole_number(64)),
            "gpuUUID": ("gpu_uuid", json.string),
            "profile": ("profile", json.string),
            "placement": ("placement", PLACEMENT),
            "migUUID": ("mig_uuid", json.string),
            "gpuInstanceID": ("gpu_instance_id", _INSTANCE),
            "computeInstanceID": ("compute_instance_id", _INSTANCE),
        },
    )
)


def decode_mig_allocations(text: str) -> tuple[MigAllocation, ...]:
    """
    Return the promised instances, in the text's order; none for the empty text.

    >>> [one] = decode_mig_allocations('[{"gpuUUID":"GPU-a","profile":"1g.5gb","placement":{"size":1}}]')
    >>> one.container_index, one.placement, one.mig_uuid
    (0, MigPlacement(start=0, size=1), None)

    Raises: DecodeError when the list is malformed, an entry incomplete, its runtime identity partial, or two entries
    are for the same device of the same container.
    """
    if not text:
        return ()
    allocations: tuple[MigAllocation, ...] = json.decode(text, _ALLOCATIONS)
    seen: set[tuple[int, int]] = set()
    for index, allocation in enumerate(allocations):
        place = f"item {index}"
        fault = _incomplete(allocation)
        if fault:
            raise DecodeError(place, fault)
        key = (allocation.container_index, allocation.device_index)
        if key in seen:
            raise DecodeError(place, f"container {key[0]} device {key[1]} is already in the list")
        seen.add(key)
    return tuple(map(_with_identity, allocations))


def encode_mig_allocations(allocations: Iterable[MigAllocation]) -> str:
    """
    Return *allocations* as 2.10 writes them; no older version reads them.

    >>> encode_mig_allocations([MigAllocation(0, 0, "GPU-a", "1g.5gb", MigPlacement(2, 1))])
    '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.5gb","placement":{"start":2,"size":1}}]'
    """
    return compact([_json_allocation(allocation) for allocation in allocations])


def split_mig_suffix(uuid: str) -> tuple[str, tuple[int, int] | None]:
    """
    Return the GPU's UUID and the geometry and slot that 2.5 to 2.9 appended to it, None where nothing is appended.

    >>> split_mig_suffix("GPU-a[1-3]"), split_mig_suffix("GPU-a")
    (('GPU-a', (1, 3)), ('GPU-a', None))

    Raises: DecodeError when there is a bracket but not `[<integer>-<integer>]`.
    """
    left, right = uuid.find("["), uuid.find("]")
    if left < 0 and right < 0:
        return uuid, None
    if not 0 <= left < right:
        raise DecodeError("MIG suffix", f"{quote(uuid)} does not end in [<geometry>-<slot>]")
    geometry, dash, slot = uuid[left + 1 : right].partition("-")
    if not dash or "-" in slot:
        raise DecodeError("MIG suffix", f"{quote(uuid)} does not end in [<geometry>-<slot>]")
    return uuid[:left], (parse_int(geometry, "MIG suffix, geometry"), parse_int(slot, "MIG suffix, slot"))


def join_mig_suffix(uuid: str, geometry: int, slot: int) -> str:
    """
    Return the UUID as 2.5 to 2.9 write it for a MIG slot.

    >>> join_mig_suffix("GPU-a", 1, 3)
    'GPU-a[1-3]'
    """
    return f"{uuid}[{geometry}-{slot}]"


def _incomplete(allocation: MigAllocation) -> str:
    """Return what is wrong with one entry, empty when nothing is."""
    if allocation.container_index < 0 or allocation.device_index < 0:
        return "containerIndex and deviceIndex must not be negative"
    for name, value in (
        ("gpuUUID", allocation.gpu_uuid),
        ("profile", allocation.profile),
        ("placement.size", allocation.placement.size),
    ):
        if not value:
            return f"{name} is missing"
    identity = (allocation.mig_uuid or None, allocation.gpu_instance_id, allocation.compute_instance_id)
    if 0 < identity.count(None) < len(identity):
        return "has some but not all of migUUID, gpuInstanceID, computeInstanceID"
    return ""


def _with_identity(allocation: MigAllocation) -> MigAllocation:
    """Return *allocation* with an empty MIG UUID as none."""
    return allocation if allocation.mig_uuid else replace(allocation, mig_uuid=None)


def _json_allocation(allocation: MigAllocation) -> dict[str, Any]:
    """Return what is written for one entry: the identity only where it exists."""
    written: dict[str, Any] = {
        "containerIndex": allocation.container_index,
        "deviceIndex": allocation.device_index,
        "gpuUUID": allocation.gpu_uuid,
        "profile": allocation.profile,
        "placement": {"start": allocation.placement.start, "size": allocation.placement.size},
    }
    if allocation.mig_uuid:
        written["migUUID"] = allocation.mig_uuid
    if allocation.gpu_instance_id is not None:
        written["gpuInstanceID"] = allocation.gpu_instance_id
    if allocation.compute_instance_id is not None:
        written["computeInstanceID"] = allocation.compute_instance_id
    return written
