"""
The shares granted to a Pod, in an annotation.

Keys: `hami.io/vgpu-devices-to-allocate`, `hami.io/vgpu-devices-allocated`, and those of other vendors.

A device is `uuid,type,mem,cores:`, and each container ends with `;`, init containers first. Versions up to 2.8 leave
init containers out. Versions differ in containers without devices:

| written by | container without devices |
|---|---|
| up to 2.5 | `,,0,0:;` in some positions, nothing in others |
| 2.6 to 2.9 | `;` |
| 2.10 | `;`, but lost where the device's model differs from the vendor's key (HAMi #2899) |

Each time a device plugin consumes a container, it adds a `;` at the end. A decoded value can therefore have more or
fewer entries than the Pod has containers; `hamicommon.pod.lists` finds the container of each.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

import sys
from typing import Final

from hamicommon.model import ContainerShares, PodShares, Share
from hamicommon.wire.errors import DecodeError, EncodeError, quote
from hamicommon.wire.go.strconv import parse_int
from hamicommon.wire.go.strings import pieces
from hamicommon.wire.limits import check_size
from hamicommon.wire.quantity import INT32_MAX
from hamicommon.wire.version import NEWEST, WireVersion

_FIELDS: Final = 4
_LEAST: Final = -INT32_MAX - 1


def decode_pod_devices(text: str) -> PodShares:
    """
    Return the shares of each part between `;`. A text that ends in `;` has an empty entry at its end.

    >>> decode_pod_devices(";GPU-a,NVIDIA,3000,30:;")
    ((), (Share(uuid='GPU-a', type='NVIDIA', memory_mib=3000, core_percent=30),), ())

    A device without UUID is an old placeholder and is left out. A part between `:` without `,` is ignored, as are
    fields after the fourth.

    Raises: DecodeError when a device has fewer than four fields or an amount is not a 32-bit integer.
    """
    check_size(text, ":;")
    return tuple(_decode_container(part, index) if part else () for index, part in enumerate(pieces(text, ";")))


def encode_pod_devices(shares: PodShares, version: WireVersion = NEWEST) -> str:
    """
    Return *shares*, one entry per container. All versions of HAMi write the same text.

    >>> encode_pod_devices(((), (Share("GPU-a", "NVIDIA", 3000, 30),)))
    ';GPU-a,NVIDIA,3000,30:;'

    Raises: EncodeError when a name has a separator in it, a UUID is empty, or an amount is no 32-bit integer.
    """
    return "".join(_encode_container(container, index) for index, container in enumerate(shares))


def _decode_container(text: str, container: int) -> ContainerShares:
    shares = []
    for index, part in enumerate(text.split(":")):
        if "," not in part:
            continue
        try:
            share = _decode_share(part)
        except DecodeError as error:
            raise error.within(f"container {container}, device {index}") from None
        if share.uuid:
            shares.append(share)
    return tuple(shares)


def _encode_container(shares: ContainerShares, container: int) -> str:
    parts = []
    for index, share in enumerate(shares):
        try:
            parts.append(_encode_share(share))
        except EncodeError as error:
            raise error.within(f"container {container}, device {index}") from None
    return "".join(parts) + ";"


def _decode_share(text: str) -> Share:
    """Return one device; a placeholder has no UUID."""
    fields = text.split(",", _FIELDS)
    if len(fields) < _FIELDS:
        raise DecodeError("", f"{quote(text)} has {len(fields)} fields, not uuid,type,memory,cores")
    memory_mib = parse_int(fields[2], "field memory", 32)
    core_percent = parse_int(fields[3], "field cores", 32)
    # The Node's inventory has the same UUID, and every share the same type.
    return Share(sys.intern(fields[0]), sys.intern(fields[1]), memory_mib, core_percent)


def _encode_share(share: Share) -> str:
    if not share.uuid:
        raise EncodeError("field uuid", "is empty, which means no device")
    for name, value in (("uuid", share.uuid), ("type", share.type)):
        if "," in value or ":" in value or ";" in value:
            raise EncodeError(f"field {name}", f"{quote(value)} has a ',', ':' or ';'")
    for name, amount in (("memory", share.memory_mib), ("cores", share.core_percent)):
        if not _LEAST <= amount <= INT32_MAX:
            raise EncodeError(f"field {name}", f"{amount} is outside {_LEAST}..{INT32_MAX}")
    return f"{share.uuid},{share.type},{share.memory_mib},{share.core_percent}:"
