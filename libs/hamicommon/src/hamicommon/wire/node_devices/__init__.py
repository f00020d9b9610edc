"""
The inventory of a Node: what its device plugin offers, as text or JSON.

Keys: `hami.io/node-nvidia-register` and each other vendor's register annotation.

| form | written by | looks like |
|---|---|---|
| text, 7 fields | NVIDIA plugin 2.4, DCU plugin | `GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true:` |
| text, 9 fields | NVIDIA plugin 2.5 to 2.7, Iluvatar | `GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true,1,hami-core:` |
| JSON | Ascend and others always, NVIDIA since 2.8 | `[{"id":"GPU-a","count":10,...,"health":true}]` |

The first character tells the forms apart.
Neighbours: `text_form` and `json_form` are the two forms. `pair_scores` reads the annotation beside it.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from hamicommon.model import Device
from hamicommon.wire.errors import EncodeError, quote
from hamicommon.wire.node_devices.json_form import decode_json, encode_json
from hamicommon.wire.node_devices.text_form import decode_text, encode_text
from hamicommon.wire.version import JSON_SINCE, NEWEST, NINE_FIELDS_SINCE, WireVersion

TEXT_VENDORS: Final = frozenset(("DCU", "Iluvatar", "BI-V100", "BI-V150", "MR-V50", "MR-V100"))
"""Vendors whose inventory is text in every version."""


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

    Raises: DecodeError when the text has neither form, or a device is malformed.
    """
    return decode_json(text) if _is_json(text) else decode_text(text)


def encode_node_devices(devices: Iterable[Device], version: WireVersion = NEWEST, vendor: str = "NVIDIA") -> str:
    """
    Return *devices* as *version* of HAMi writes the inventory of *vendor*.

    >>> device = Device("GPU-a", count=10, memory_mib=7680, core_percent=100, type="Tesla P4", mode="hami-core")
    >>> encode_node_devices([device])
    '[{"id":"GPU-a","count":10,"devmem":7680,"devcore":100,"type":"Tesla P4","mode":"hami-core","health":true}]'
    >>> encode_node_devices([device], WireVersion(2, 4))
    'GPU-a,10,7680,100,Tesla P4,0,true:'

    Fields that *version* does not have are left out. Without devices the text form is empty, which no reader takes for
    an inventory.

    Raises: EncodeError when the text form cannot carry a name because of `,` or `:` in it, or `[` before it.
    """
    form = node_form(version, vendor)
    if form is NodeForm.JSON:
        return encode_json(devices, version)
    text = encode_text(devices, is_indexed=form is NodeForm.TEXT_9)
    if _is_json(text):
        raise EncodeError("device 0, field id", f"{quote(text)} begins with '[' and would be read as JSON")
    return text


def _is_json(text: str) -> bool:
    """Return whether *text* has the JSON form: its first character is a bracket."""
    return text.lstrip(" \t\r\n").startswith("[")
