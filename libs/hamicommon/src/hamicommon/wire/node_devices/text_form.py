"""
The text form of a Node's inventory: `id,count,memory,cores,type,numa,health:` a device.

The form of 9 fields has `,index,mode` before the colon.
Neighbours: `node_devices` says which version writes which form.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

from collections.abc import Iterable
from typing import Final

from hamicommon.model import Device
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, EncodeError, quote
from hamicommon.wire.go.strconv import parse_bool, parse_int
from hamicommon.wire.go.strings import pieces
from hamicommon.wire.limits import check_size
from hamicommon.wire.quantity import INT64_MAX

_DEFAULT_MODE: Final = "hami-core"
"""The mode of a device in the form of 7 fields, which does not name one."""


def decode_text(text: str) -> tuple[Device, ...]:
    """
    Return the devices of *text*. Empty parts between `:` are ignored.

    Raises: DecodeError naming the device and the field.
    """
    if ":" not in text:
        raise DecodeError(WHOLE_TEXT, f"{quote(text)} has no ':' after a device and is not a JSON list")
    check_size(text, ":")
    devices: list[Device] = []
    for part in pieces(text, ":"):
        try:
            if part:
                devices.append(_decode_device(part))
        except DecodeError as error:
            raise error.within(f"device {len(devices)}") from None
    return tuple(devices)


def encode_text(devices: Iterable[Device], *, is_indexed: bool) -> str:
    """
    Return *devices* with 7 fields, or with 9 when *is_indexed*.

    Raises: EncodeError when a name has a `,` or `:` in it, or an index is larger than a reader takes.
    """
    parts = []
    for position, device in enumerate(devices):
        try:
            parts.append(_encode_device(device, is_indexed))
        except EncodeError as error:
            raise error.within(f"device {position}") from None
    return "".join(parts)


def _decode_device(text: str) -> Device:
    """Return one device. The fields are checked in HAMi's order."""
    fields = text.split(",", 9)
    if len(fields) not in (7, 9):
        raise DecodeError("", f"{quote(text)} has {text.count(',') + 1} fields, not 7 or 9")
    count = parse_int(fields[1], "field count", 32)
    memory_mib = parse_int(fields[2], "field memory", 32)
    core_percent = parse_int(fields[3], "field core", 32)
    healthy = parse_bool(fields[6])
    if healthy is None:
        raise DecodeError("field health", f"{quote(fields[6])} is neither true nor false")
    numa = parse_int(fields[5], "field numa")
    index, mode = 0, _DEFAULT_MODE
    if len(fields) == 9:
        index, mode = parse_int(fields[7], "field index"), fields[8]
        if index < 0:
            raise DecodeError("field index", f"{index} is negative")
    return Device(
        id=fields[0],
        count=count,
        memory_mib=memory_mib,
        core_percent=core_percent,
        type=fields[4],
        index=index,
        numa=numa,
        mode=mode,
        healthy=healthy,
    )


def _encode_device(device: Device, is_indexed: bool) -> str:
    tail = f",{device.index},{device.mode}" if is_indexed else ""
    for name, value in (("id", device.id), ("type", device.type), ("mode", device.mode if is_indexed else "")):
        if "," in value or ":" in value:
            raise EncodeError(f"field {name}", f"{quote(value)} has a ',' or ':' in it")
    if is_indexed and device.index > INT64_MAX:
        raise EncodeError("field index", f"{device.index} is larger than {INT64_MAX}")
    amounts = f"{device.count},{device.memory_mib},{device.core_percent}"
    health = "true" if device.healthy else "false"
    return f"{device.id},{amounts},{device.type},{device.numa},{health}{tail}:"
