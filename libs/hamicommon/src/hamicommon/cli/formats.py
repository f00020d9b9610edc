"""
The formats that `python -m hamicommon` decodes and encodes, as one table.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from hamicommon.cli import shapes
from hamicommon.cli.region_file import read_region
from hamicommon.wire.errors import EncodeError
from hamicommon.wire.handshake import decode_handshake, encode_handshake
from hamicommon.wire.mig.allocations import decode_mig_allocations, encode_mig_allocations
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices
from hamicommon.wire.node_lock import decode_node_lock, encode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices
from hamicommon.wire.scoring_weights import decode_scoring_weights, encode_scoring_weights
from hamicommon.wire.version import PLACEMENTS_SINCE, WireVersion


@dataclass(frozen=True)
class Format:
    """One format: its row in the table, and the functions between wire text and JSON."""

    name: str
    keys: str
    writers: str
    readers: str
    versions: str
    shape: Callable[[str, str], Any]
    """Returns the JSON value of a wire text and a vendor."""
    text: Callable[[str, WireVersion, str], str]
    """Returns the wire text of a JSON text, a version and a vendor."""


def _node_devices(text: str, vendor: str) -> Any:
    devices = decode_node_devices(text)
    return (shapes.device_shape(device if device.vendor else replace(device, vendor=vendor)) for device in devices)


def _since_placements(name: str, version: WireVersion) -> None:
    if version < PLACEMENTS_SINCE:
        raise EncodeError("wire version", f"{version} does not have {name}, which exists since {PLACEMENTS_SINCE}")


def _mig_text(json: str, version: WireVersion, _vendor: str) -> str:
    _since_placements("mig-allocations", version)
    return encode_mig_allocations(shapes.read_allocations(json))


def _weights_text(json: str, version: WireVersion, _vendor: str) -> str:
    _since_placements("scoring-weights", version)
    return encode_scoring_weights(shapes.read_weights(json))


def _region_text(_json: str, _version: WireVersion, _vendor: str) -> NoReturn:
    raise EncodeError("region", "is a file of bytes, not text; only decode takes it")


FORMATS: Final = (
    Format(
        "node-devices",
        "hami.io/node-nvidia-register and each vendor's",
        "device plugin",
        "scheduler",
        "2.4: text of 7 fields; 2.5-2.7: of 9; 2.8-2.9: JSON; 2.10: JSON with MIG profiles",
        _node_devices,
        lambda json, version, vendor: encode_node_devices(shapes.read_devices(json), version, vendor or "NVIDIA"),
    ),
    Format(
        "pod-devices",
        "hami.io/vgpu-devices-to-allocate, -allocated and each vendor's",
        "scheduler, device plugin",
        "device plugin, scheduler, monitor",
        "2.4-2.10: one form; empty containers differ",
        lambda text, _vendor: map(shapes.container_shape, decode_pod_devices(text)),
        lambda json, version, _vendor: encode_pod_devices(shapes.read_pod(json), version),
    ),
    Format(
        "mig-allocations",
        "hami.io/vgpu-mig-allocations",
        "scheduler, device plugin",
        "device plugin, scheduler",
        "2.10; before, a suffix of the UUID in pod-devices",
        lambda text, _vendor: map(shapes.allocation_shape, decode_mig_allocations(text)),
        _mig_text,
    ),
    Format(
        "node-lock",
        "hami.io/mutex.lock",
        "scheduler",
        "scheduler, device plugin",
        "before 2.4: time; 2.4-2.10: time,namespace,pod",
        lambda text, _vendor: shapes.lock_shape(decode_node_lock(text)),
        lambda json, version, _vendor: encode_node_lock(shapes.read_lock(json), version),
    ),
    Format(
        "handshake",
        "hami.io/node-handshake and each vendor's",
        "scheduler, device plugin",
        "scheduler",
        "2.4: time with dots; 2.5-2.10: with dashes",
        lambda text, _vendor: shapes.handshake_shape(decode_handshake(text)),
        lambda json, version, _vendor: encode_handshake(shapes.read_handshake(json), version),
    ),
    Format(
        "scoring-weights",
        "hami.io/device-scoring-weights",
        "user",
        "scheduler",
        "2.10",
        lambda text, _vendor: shapes.weights_shape(decode_scoring_weights(text)),
        _weights_text,
    ),
    Format(
        "region",
        "<hook path>/containers/<pod>_<container>/*.cache",
        "libvgpu.so, monitor",
        "monitor, libvgpu.so",
        "v0: up to 2.4.0; v1.1: 2.4.1-2.8.0; v1.1-shifted: 2.8.1; v1.2: 2.8.2-2.10",
        lambda path, _vendor: shapes.region_shape(read_region(path)),
        _region_text,
    ),
)
