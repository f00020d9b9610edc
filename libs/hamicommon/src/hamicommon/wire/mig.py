"""
The MIG instances granted to a Pod: the annotation `hami.io/vgpu-mig-allocations`, a JSON list, since 2.10.

The scheduler writes the first five fields. The device plugin adds the runtime identity once the instance exists.
From 2.5 to 2.9 the UUID in a Pod's devices named the instance, `GPU-a[1-3]`: geometry 1 in the model's list of
geometries, slot 3 in that geometry.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/mig_allocations.go
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from hamicommon.model import MigAllocation, MigPlacement
from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.json_writer import compact
from hamicommon.wire.go.strconv import parse_int
from hamicommon.wire.limits import check_size

PLACEMENT: Final = json.struct(
    MigPlacement(0, 0),
    {
        "start": ("start", json.whole_number(32, signed=False)),
        "size": ("size", json.whole_number(32, signed=False)),
    },
)
"""A placement, also in the inventory."""
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
    Return the instances in the order of *text*; none for the empty text.

    >>> [one] = decode_mig_allocations('[{"gpuUUID":"GPU-a","profile":"1g.5gb","placement":{"size":1}}]')
    >>> one.container_index, one.placement, one.mig_uuid
    (0, MigPlacement(start=0, size=1), None)

    Raises: DecodeError when the list is malformed, an entry or its runtime identity is incomplete, or two entries are
    for the same device of the same container.
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


def _incomplete(allocation: MigAllocation) -> str:
    """Return what is missing in one entry, empty if it is complete."""
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
    """Return *allocation* with None in place of an empty MIG UUID."""
    return allocation if allocation.mig_uuid else replace(allocation, mig_uuid=None)


def _json_allocation(allocation: MigAllocation) -> dict[str, Any]:
    """Return the object of one entry, with the identity if it exists."""
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


def decode_mig_suffix(uuid: str) -> tuple[str, tuple[int, int] | None]:
    """
    Return the GPU's UUID, and the geometry and slot after it, None if there is no suffix.

    >>> decode_mig_suffix("GPU-a[1-3]"), decode_mig_suffix("GPU-a")
    (('GPU-a', (1, 3)), ('GPU-a', None))

    Raises: DecodeError when there is a bracket, but no `[<integer>-<integer>]`.
    """
    check_size(uuid)
    left, right = uuid.find("["), uuid.find("]")
    if left < 0 and right < 0:
        return uuid, None
    if not 0 <= left < right:
        raise DecodeError("MIG suffix", f"{quote(uuid)} does not end in [<geometry>-<slot>]")
    geometry, dash, slot = uuid[left + 1 : right].partition("-")
    if not dash or "-" in slot:
        raise DecodeError("MIG suffix", f"{quote(uuid)} does not end in [<geometry>-<slot>]")
    return uuid[:left], (parse_int(geometry, "MIG suffix, geometry"), parse_int(slot, "MIG suffix, slot"))
