"""
The limits file of a container: what the device plugin granted, for `libvgpu.so`.

    hami-limits 1
    GPU-8f2c1d7e-… 8589934592 30
    CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/6f0e….cache

The first line is the version. A device is its UUID, bytes of memory (0: no limit) and percent of time (100: no limit).
The other lines are the variables that the plugin also sets in the container's environment. Every line ends with LF.
The library reads the file by the same rules (`native/hami-core/src/base/limits_file.c`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, EncodeError, quote

VERSION_LINE: Final = "hami-limits 1"
BYTES_MAX: Final = 8192
DEVICES_MAX: Final = 16
_UUID_BYTES_MAX: Final = 95
_MEMORY_BYTES_MAX: Final = 2**64 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_VARIABLE: Final = re.compile(r"[^ =\n\0]+=")


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a container may use of one device."""

    memory_bytes: int
    """0 means no limit."""
    core_percent: int
    """From 1 to 100, which means no limit."""


@dataclass(frozen=True, slots=True)
class LimitsFile:
    """What was granted to one container."""

    devices: Mapping[str, DeviceLimits]
    """By UUID."""
    environment: Mapping[str, str] = field(default_factory=dict)


def decode_limits_file(content: bytes) -> LimitsFile:
    """
    Read a limits file.

    >>> file = decode_limits_file(b"hami-limits 1\\nGPU-a 1024 30\\nCUDA_OVERSUBSCRIBE=true\\n")
    >>> file.devices["GPU-a"].memory_bytes, file.environment
    (1024, {'CUDA_OVERSUBSCRIBE': 'true'})

    Raises: DecodeError
    """
    if len(content) > BYTES_MAX:
        raise DecodeError(WHOLE_TEXT, f"has {len(content)} bytes, more than {BYTES_MAX}")
    try:
        version, *lines, end = content.decode().split("\n")
    except (UnicodeDecodeError, ValueError) as error:
        raise DecodeError(WHOLE_TEXT, "is not lines of UTF-8") from error
    if end or b"\0" in content:
        raise DecodeError(WHOLE_TEXT, "is not lines of text")
    if version != VERSION_LINE:
        raise DecodeError("line 1", f"is {quote(version)}, not {VERSION_LINE!r}")
    devices: dict[str, DeviceLimits] = {}
    environment: dict[str, str] = {}
    for number, line in enumerate(lines, start=2):
        if _VARIABLE.match(line):
            name, _, value = line.partition("=")
            environment.setdefault(name, value)
            continue
        uuid, limits = _device(line, f"line {number}")
        if any(_digits(uuid) == _digits(other) for other in devices):
            raise DecodeError(f"line {number}", f"device {uuid} is listed twice")
        devices[uuid] = limits
    if len(devices) > DEVICES_MAX:
        raise DecodeError(WHOLE_TEXT, f"lists {len(devices)} devices, more than {DEVICES_MAX}")
    return LimitsFile(devices, environment)


def encode_limits_file(file: LimitsFile) -> bytes:
    """
    Write a limits file.

    Raises: EncodeError
    """
    lines = [VERSION_LINE]
    lines += [f"{uuid} {limits.memory_bytes} {limits.core_percent}" for uuid, limits in file.devices.items()]
    lines += [f"{name}={value}" for name, value in file.environment.items()]
    content = "".join(f"{line}\n" for line in lines).encode()
    try:
        read = decode_limits_file(content)
    except DecodeError as error:
        raise EncodeError(error.place, error.reason) from error
    if read != file:
        raise EncodeError(WHOLE_TEXT, "has a name or value that a reader would read differently")
    return content


def _device(line: str, place: str) -> tuple[str, DeviceLimits]:
    uuid, *numbers = line.split(" ")
    if not uuid or len(numbers) != 2 or not all(_NUMBER.fullmatch(number) for number in numbers):
        raise DecodeError(place, f"{quote(line)} is neither NAME=VALUE nor a UUID, bytes and percent")
    limits = DeviceLimits(*map(int, numbers))
    if len(uuid.encode()) > _UUID_BYTES_MAX or limits.memory_bytes > _MEMORY_BYTES_MAX:
        raise DecodeError(place, f"{quote(line)} has a UUID or a number that is too long")
    if not 1 <= limits.core_percent <= 100:
        raise DecodeError(place, f"{limits.core_percent} is not a percentage from 1 to 100")
    return uuid, limits


def _digits(uuid: str) -> bytes:
    """Return a UUID without its prefix, GPU- or MIG-; the driver's libraries write different ones."""
    text = uuid.encode()
    return text[4:] if text[3:4] == b"-" else text
