"""
The formats that `python -m hamicommon` decodes, as one table.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from hamicommon.cli import shapes
from hamicommon.cli.region_file import read_region
from hamicommon.wire.handshake import decode_handshake
from hamicommon.wire.mig import decode_mig_allocations
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices
from hamicommon.wire.policies import decode_scoring_weights


@dataclass(frozen=True)
class Format:
    """One format: its row in the table, and the function from its wire text to JSON."""

    name: str
    keys: str
    writers: str
    readers: str
    versions: str
    shape: Callable[[str, str], Any]
    """Returns the JSON value of a wire text and a vendor."""


def _node_devices(text: str, vendor: str) -> Any:
    devices = decode_node_devices(text)
    return (asdict(device if device.vendor else replace(device, vendor=vendor)) for device in devices)


FORMATS: Final = (
    Format(
        "node-devices",
        "hami.io/node-nvidia-register and each vendor's",
        "device plugin",
        "scheduler",
        "2.4: text of 7 fields; 2.5-2.7: of 9; 2.8-2.9: JSON; 2.10: JSON with MIG profiles",
        _node_devices,
    ),
    Format(
        "pod-devices",
        "hami.io/vgpu-devices-to-allocate, -allocated and each vendor's",
        "scheduler, device plugin",
        "device plugin, scheduler, monitor",
        "2.4-2.10: one form; empty containers differ",
        lambda text, _vendor: ([asdict(share) for share in of] for of in decode_pod_devices(text)),
    ),
    Format(
        "mig-allocations",
        "hami.io/vgpu-mig-allocations",
        "scheduler, device plugin",
        "device plugin, scheduler",
        "2.10; before, a suffix of the UUID in pod-devices",
        lambda text, _vendor: map(asdict, decode_mig_allocations(text)),
    ),
    Format(
        "node-lock",
        "hami.io/mutex.lock",
        "scheduler",
        "scheduler, device plugin",
        "before 2.4: time; 2.4-2.10: time,namespace,pod",
        lambda text, _vendor: shapes.lock_shape(decode_node_lock(text)),
    ),
    Format(
        "handshake",
        "hami.io/node-handshake and each vendor's",
        "scheduler, device plugin",
        "scheduler",
        "2.4: time with dots; 2.5-2.10: with dashes",
        lambda text, _vendor: shapes.handshake_shape(decode_handshake(text)),
    ),
    Format(
        "scoring-weights",
        "hami.io/device-scoring-weights",
        "user",
        "scheduler",
        "2.10",
        lambda text, _vendor: asdict(decode_scoring_weights(text)),
    ),
    Format(
        "region",
        "<hook path>/containers/<pod>_<container>/*.cache",
        "libvgpu.so, monitor",
        "monitor, libvgpu.so",
        "v0: up to 2.4.0; v1.1: 2.4.1-2.8.0; v1.1-shifted: 2.8.1; v1.2: 2.8.2-2.10",
        lambda path, _vendor: shapes.region_shape(read_region(path)),
    ),
)
