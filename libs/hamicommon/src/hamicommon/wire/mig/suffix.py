"""
The MIG slot in a device's UUID in a Pod's devices, `GPU-a[1-3]`, from 2.5 to 2.9.

The example is geometry 1 in the model's list of geometries, slot 3 in that geometry.
Neighbours: `allocations` is the form since 2.10.
"""

from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.go.strconv import parse_int
from hamicommon.wire.limits import check_size


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
