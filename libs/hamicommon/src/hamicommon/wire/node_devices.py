"""
The inventory of a Node: what its device plugin offers, as text or JSON.

Keys: `hami.io/node-nvidia-register` and each other vendor's register annotation.

| form | written by | looks like |
|---|---|---|
| text, 7 fields | NVIDIA plugin 2.4, DCU plugin | `GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true:` |
| text, 9 fields | NVIDIA plugin 2.5 to 2.7, Iluvatar | `GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true,1,hami-core:` |
| JSON | Ascend and others always, NVIDIA since 2.8 | `[{"id":"GPU-a","count":10,...,"health":true}]` |

Zero values are absent from JSON, so a device without `health` is unhealthy. 2.6 to 2.9 add an empty
`devicepairscore` to every device, 2.10 adds `migProfiles`. The forms are told apart by their first character.
Neighbours: `pair_scores` is the annotation beside it.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from hamicommon.model import Device, MigProfile
from hamicommon.wire import json_reader as json
from hamicommon.wire.budget import POINTER_BYTES, Budget
from hamicommon.wire.errors import DecodeError, EncodeError, quote
from hamicommon.wire.json_writer import compact
from hamicommon.wire.mig import PLACEMENT
from hamicommon.wire.pair_scores import decode_pair_scores, encode_pair_scores
from hamicommon.wire.strconv import parse_bool, parse_int
from hamicommon.wire.text import pieces
from hamicommon.wire.version import JSON_SINCE, NEWEST, NINE_FIELDS_SINCE, PLACEMENTS_SINCE, WireVersion

__all__ = [
    "DEFAULT_MODE",
    "TEXT_VENDORS",
    "NodeForm",
    "decode_node_devices",
    "decode_pair_scores",
    "encode_node_devices",
    "encode_pair_scores",
    "node_form",
]

DEFAULT_MODE: Final = "hami-core"
"""What the 7-field text means by saying nothing."""

TEXT_VENDORS: Final = frozenset(("DCU", "Iluvatar", "BI-V100", "BI-V150", "MR-V50", "MR-V100"))
"""Vendors whose inventory is text in every version."""

_PAIR_SCORE_SINCE: Final = WireVersion(2, 6)
_CUSTOM_SINCE: Final = WireVersion(2, 5)
_DEVICE_BYTES: Final = 200


class NodeForm(Enum):
    """How an inventory is written."""

    TEXT_7 = "text of 7 fields"
    TEXT_9 = "text of 9 fields"
    JSON = "JSON"


def node_form(version: WireVersion, vendor: str = "NVIDIA") -> NodeForm:
    """
    Return the form in which *version* of HAMi writes and reads the inventory of *vendor*.

    >>> node_form(WireVersion(2, 7)), node_form(WireVersion(2, 7), "Ascend910B3")
    (<NodeForm.TEXT_9: 'text of 9 fields'>, <NodeForm.JSON: 'JSON'>)
    """
    if vendor not in TEXT_VENDORS and (vendor != "NVIDIA" or version >= JSON_SINCE):
        return NodeForm.JSON
    return NodeForm.TEXT_9 if version >= NINE_FIELDS_SINCE else NodeForm.TEXT_7


def decode_node_devices(text: str) -> tuple[Device, ...]:
    """
    Return the devices that *text* offers, in its order.

    >>> [device] = decode_node_devices("GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true:")
    >>> device.id, device.memory_mib, device.mode, device.healthy
    ('GPU-a', 7680, 'hami-core', True)
    >>> [device] = decode_node_devices('[{"id":"GPU-a","devmem":40960}]')
    >>> device.memory_mib, device.healthy
    (40960, False)

    A `null` in the JSON list is no device and is left out: HAMi 2.10 dies of it.

    Raises: DecodeError when the text is in no form, or any one device is malformed.
    """
    return _decode_json(text) if _is_json(text) else _decode_text(text)


def encode_node_devices(devices: Iterable[Device], version: WireVersion = NEWEST, vendor: str = "NVIDIA") -> str:
    """
    Return *devices* as *version* of HAMi writes the inventory of *vendor*.

    >>> device = Device("GPU-a", count=10, memory_mib=7680, core_percent=100, type="Tesla P4", mode="hami-core")
    >>> encode_node_devices([device])
    '[{"id":"GPU-a","count":10,"devmem":7680,"devcore":100,"type":"Tesla P4","mode":"hami-core","health":true}]'
    >>> encode_node_devices([device], WireVersion(2, 4))
    'GPU-a,10,7680,100,Tesla P4,0,true:'

    What *version* has no field for is left out. No devices are the empty text in the text form, which no reader takes
    for an inventory.

    Raises: EncodeError when the text form cannot carry a name because of `,` or `:` in it, or `[` before it.
    """
    form = node_form(version, vendor)
    if form is NodeForm.JSON:
        return compact([_json_device(device, version) for device in devices])
    text = "".join(_text_device(index, device, form) for index, device in enumerate(devices))
    if _is_json(text):
        raise EncodeError("device 0, field id", f"{quote(text)} begins with '[' and would be read as JSON")
    return text


def _is_json(text: str) -> bool:
    """Say whether *text* is the JSON form: its first character is a bracket."""
    return text.lstrip(" \t\r\n").startswith("[")


def _decode_text(text: str) -> tuple[Device, ...]:
    """Read the text form."""
    if ":" not in text:
        raise DecodeError("whole text", f"{quote(text)} has no ':' after a device and is not a JSON list")
    return tuple(_text_devices(text))


def _text_devices(text: str) -> Iterator[Device]:
    budget = Budget(len(text))
    before, device = "", None
    index = 0
    for piece in pieces(text, ":"):
        if not piece:
            continue
        budget.spend(POINTER_BYTES)
        if device is None or piece != before:
            device = _device_of_text(piece, f"device {index}")
            budget.spend(_DEVICE_BYTES)
            budget.spend_string(device.id)
            budget.spend_string(device.type)
            before = piece
        yield device
        index += 1


def _device_of_text(piece: str, place: str) -> Device:
    """Read one device of the text form, checking fields in the order HAMi does."""
    commas = piece.count(",")
    if commas not in (6, 8):
        raise DecodeError(place, f"{quote(piece)} has {commas + 1} fields, not 7 or 9")
    values = piece.split(",")
    count = parse_int(values[1], f"{place}, field count", 32)
    memory_mib = parse_int(values[2], f"{place}, field memory", 32)
    core_percent = parse_int(values[3], f"{place}, field core", 32)
    healthy = parse_bool(values[6])
    if healthy is None:
        raise DecodeError(f"{place}, field health", f"{quote(values[6])} is neither true nor false")
    numa = parse_int(values[5], f"{place}, field numa")
    index, mode = 0, DEFAULT_MODE
    if commas == 8:
        index, mode = parse_int(values[7], f"{place}, field index"), values[8]
        if index < 0:
            raise DecodeError(f"{place}, field index", f"{index} is negative")
    return Device(
        id=values[0],
        count=count,
        memory_mib=memory_mib,
        core_percent=core_percent,
        type=values[4],
        index=index,
        numa=numa,
        mode=mode,
        healthy=healthy,
    )


def _text_device(position: int, device: Device, form: NodeForm) -> str:
    """Write one device of the text form."""
    mode = device.mode if form is NodeForm.TEXT_9 else ""
    for name, value in (("id", device.id), ("type", device.type), ("mode", mode)):
        if "," in value or ":" in value:
            raise EncodeError(f"device {position}, field {name}", f"{quote(value)} has a ',' or ':' in it")
    values: list[Any] = [device.id, device.count, device.memory_mib, device.core_percent, device.type, device.numa]
    values.append("true" if device.healthy else "false")
    if form is NodeForm.TEXT_9:
        values += [device.index, mode]
    return ",".join(map(str, values)) + ":"


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


@dataclass(frozen=True, slots=True)
class _Template:
    """One entry of `migtemplate`, which 2.5 to 2.9 kept: still checked, then forgotten, as 2.10 does."""

    name: str = ""
    core: int = 0
    memory: int = 0
    count: int = 0


_TEMPLATE: Final = json.struct(
    _Template(),
    {
        "name": ("name", json.string),
        "core": ("core", json.whole_number(32)),
        "memory": ("memory", json.whole_number(32)),
        "count": ("count", json.whole_number(32)),
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
    },
)
_DEVICES: Final = json.array(json.optional(_DEVICE))


def _decode_json(text: str) -> tuple[Device, ...]:
    """Read the JSON form."""
    devices = json.decode(text, _DEVICES)
    return tuple(device for device in devices if device is not None)


def _json_device(device: Device, version: WireVersion) -> dict[str, Any]:
    """Return what *version* writes for one device, zero values left out."""
    written: dict[str, Any] = {
        "id": device.id,
        "index": device.index,
        "count": device.count,
        "devmem": device.memory_mib,
        "devcore": device.core_percent,
        "type": device.type,
        "numa": device.numa,
        "mode": device.mode if version >= NINE_FIELDS_SINCE else "",
        "migProfiles": [_json_profile(profile) for profile in device.mig_profiles]
        if version >= PLACEMENTS_SINCE
        else [],
        "health": device.healthy,
        "devicevendor": device.vendor,
        "custominfo": dict(device.custom) if version >= _CUSTOM_SINCE else {},
    }
    written = {key: value for key, value in written.items() if value}
    if _PAIR_SCORE_SINCE <= version < PLACEMENTS_SINCE:
        written["devicepairscore"] = {}
    return written


def _json_profile(profile: MigProfile) -> dict[str, Any]:
    """Return what 2.10 writes for one MIG profile, zero values included."""
    return {
        "name": profile.name,
        "memoryMB": profile.memory_mib,
        "core": profile.core_percent,
        "sliceCount": profile.slice_count,
        "placements": [{"start": place.start, "size": place.size} for place in profile.placements],
    }
