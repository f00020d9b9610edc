"""
The JSON form of a Node's inventory: one object a device, zero values left out.

A device without `health` is therefore unhealthy. 2.5 added `mode` and `custominfo`; 2.6 to 2.9 add an empty
`devicepairscore` to every device; 2.10 added `migProfiles` in place of `migtemplate`. `allocation` is ours: HAMi's
readers ignore it, and HAMi's device plugin removes it when it writes its own inventory.
Neighbours: `node_devices` says which version writes which form.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.model import Device, MigProfile
from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.json_writer import compact
from hamicommon.wire.mig import PLACEMENT
from hamicommon.wire.version import NINE_FIELDS_SINCE, PLACEMENTS_SINCE, WireVersion

_PAIR_SCORE_SINCE: Final = WireVersion(2, 6)
_CUSTOM_SINCE: Final = WireVersion(2, 5)
_IDENTITY: Final = "identity"
"""The `allocation` of a device whose plugin finds the owner of an allocation without the node lock."""


@dataclass(frozen=True, slots=True)
class _Template:
    """One entry of `migtemplate`, which 2.5 to 2.9 wrote. It is checked and ignored, as in 2.10."""

    name: str = ""
    core: int = 0
    memory: int = 0
    count: int = 0


def _is_identity(reader: json.Reader, _old: bool | None) -> bool:
    """Read whether `allocation` is the known word; a value of any other kind is not, as of an unknown key."""
    if reader.peek() == '"':
        return reader.string() == _IDENTITY
    reader.skip()
    return False


_TEMPLATE: Final = json.struct(
    _Template(),
    {
        "name": ("name", json.string),
        "core": ("core", json.whole_number(32)),
        "memory": ("memory", json.whole_number(32)),
        "count": ("count", json.whole_number(32)),
    },
)
_PROFILE: Final = json.struct(
    MigProfile("", 0, 0, 0),
    {
        "name": ("name", json.string),
        "memoryMB": ("memory_mib", json.whole_number(32)),
        "core": ("core_percent", json.whole_number(32)),
        "sliceCount": ("slice_count", json.whole_number(32, signed=False)),
        "placements": ("placements", json.array(PLACEMENT)),
    },
)
_DEVICE: Final = json.struct(
    Device("", 0, 0, 0, "", healthy=False),
    {
        "id": ("id", json.string),
        "index": ("index", json.whole_number(64, signed=False)),
        "count": ("count", json.whole_number(32)),
        "devmem": ("memory_mib", json.whole_number(32)),
        "devcore": ("core_percent", json.whole_number(32)),
        "type": ("type", json.string),
        "numa": ("numa", json.whole_number(64)),
        "mode": ("mode", json.string),
        "migProfiles": ("mig_profiles", json.array(_PROFILE)),
        "migtemplate": ("", json.array(json.array(_TEMPLATE))),
        "health": ("healthy", json.truth),
        "devicevendor": ("vendor", json.string),
        "custominfo": ("custom", json.mapping(json.anything)),
        "allocation": ("finds_owners", _is_identity),
    },
)
_DEVICES: Final = json.array(json.optional(_DEVICE))


def decode_json(text: str) -> tuple[Device, ...]:
    """
    Return the devices of *text*. A `null` in the list is left out; HAMi 2.10 crashes on it.

    Raises: DecodeError naming the item and the field.
    """
    return tuple(device for device in json.decode(text, _DEVICES) if device is not None)


def encode_json(devices: Iterable[Device], version: WireVersion) -> str:
    """
    Return *devices* with the fields that *version* has.

    Raises: EncodeError when a device's custom part has no JSON form.
    """
    return compact([_device_object(device, version) for device in devices])


def _device_object(device: Device, version: WireVersion) -> dict[str, Any]:
    profiles = device.mig_profiles if version >= PLACEMENTS_SINCE else ()
    fields = {
        "id": device.id,
        "index": device.index,
        "count": device.count,
        "devmem": device.memory_mib,
        "devcore": device.core_percent,
        "type": device.type,
        "numa": device.numa,
        "mode": device.mode if version >= NINE_FIELDS_SINCE else "",
        "migProfiles": [_profile_object(profile) for profile in profiles],
        "health": device.healthy,
        "devicevendor": device.vendor,
        "custominfo": dict(device.custom) if version >= _CUSTOM_SINCE else {},
        "allocation": _IDENTITY if device.finds_owners else "",
    }
    written = {key: value for key, value in fields.items() if value}
    if _PAIR_SCORE_SINCE <= version < PLACEMENTS_SINCE:
        written["devicepairscore"] = {}
    return written


def _profile_object(profile: MigProfile) -> dict[str, Any]:
    """Return the object of one MIG profile, zero values included."""
    return {
        "name": profile.name,
        "memoryMB": profile.memory_mib,
        "core": profile.core_percent,
        "sliceCount": profile.slice_count,
        "placements": [{"start": place.start, "size": place.size} for place in profile.placements],
    }
