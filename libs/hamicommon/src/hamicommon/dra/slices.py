"""
Write the ResourceSlice of a Node: one pool, named after the Node, in one slice with all of its devices.

Attributes have HAMi's names. Those that mean the same as NVIDIA's driver says (`gpu.nvidia.com`), or as Kubernetes
defines, are there under these names too, so that one CEL expression selects from several drivers.
Source: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/cmd/gpu-kubelet-plugin/deviceinfo.go
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.dra.names import (
    API_VERSION,
    CORES,
    DEVICE_TYPE,
    DRIVER,
    MEMORY,
    REPLICAS,
    TAINT_PREFIX,
    device_name,
)
from hamicommon.model import Device, Object
from hamicommon.wire.errors import EncodeError

DEVICES_MAX: Final = 64
"""Of one slice with taints."""
_TEXT_MAX: Final = 64
_NVIDIA: Final = "gpu.nvidia.com"
_NVIDIAS: Final = (
    "uuid",
    "productName",
    "brand",
    "architecture",
    "cudaComputeCapability",
    "driverVersion",
    "cudaDriverVersion",
)
"""Attributes that mean the same in NVIDIA's driver."""
_WHOLE_PERCENT: Final = 100
_BINARY_SUFFIXES: Final = ("Mi", "Gi", "Ti", "Pi", "Ei")


@dataclass(frozen=True, slots=True)
class Description:
    """What a device is. What its driver does not say is empty, and has no attribute."""

    minor: int
    """N of /dev/nvidiaN."""
    product_name: str = ""
    brand: str = ""
    architecture: str = ""
    compute_capability: str = ""
    """`8.0`."""
    driver_version: str = ""
    """`550.54.15`."""
    cuda_driver_version: str = ""
    """`12.4`."""
    pci_bus_id: str = ""
    """`0000:01:00.0`."""
    pcie_root: str = ""
    """`pci0000:00`."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """One device of a slice."""

    device: Device
    """With its amounts after scaling."""
    description: Description
    faults: tuple[str, ...] = ()
    """Why it takes no new shares, a word each; such words are the keys of its taints."""

    @property
    def name(self) -> str:
        """Its name in the slice."""
        return device_name(self.description.minor)


def encode_slice(node: Mapping[str, Any], devices: Sequence[OfferedDevice], generation: int) -> Object:
    """
    Return the slice that offers *devices* on *node*, an object of the API; the Node owns it.

    Raises:
        EncodeError: the Node has no UID, or there are more devices than one slice may have.
    """
    metadata = node.get("metadata") or {}
    name, uid = metadata.get("name"), metadata.get("uid")
    if not name or not uid:
        raise EncodeError("Node", "has no name or UID yet, which its ResourceSlice names")
    if len(devices) > DEVICES_MAX:
        raise EncodeError(f"Node {name}", f"has {len(devices)} devices, and a slice may have {DEVICES_MAX}")
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": f"{name[:_TEXT_MAX].rstrip('.-')}-{DRIVER}-",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True},
            ],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": generation, "resourceSliceCount": 1},
            "devices": [encode_device(device) for device in devices],
        },
    }


def encode_device(offered: OfferedDevice) -> Object:
    """Return one entry of a slice's `devices`."""
    taints = [{"key": f"{TAINT_PREFIX}{fault}", "effect": "NoSchedule"} for fault in offered.faults]
    return {
        "name": offered.name,
        "attributes": _attributes(offered),
        "capacity": _capacity(offered.device),
        "allowMultipleAllocations": True,
        **({"taints": taints} if taints else {}),
    }


def mib_quantity(size_mib: int) -> str:
    """
    Return *size_mib*, at least 1, as the API server writes it: with the largest unit of which it is a whole multiple.

    >>> mib_quantity(40960), mib_quantity(1025), mib_quantity(1)
    ('40Gi', '1025Mi', '1Mi')
    """
    power = 0
    while size_mib % 1024 == 0 and power + 1 < len(_BINARY_SUFFIXES):
        size_mib, power = size_mib // 1024, power + 1
    return f"{size_mib}{_BINARY_SUFFIXES[power]}"


def _attributes(offered: OfferedDevice) -> Object:
    device, found = offered.device, offered.description
    own: Object = {
        "type": {"string": DEVICE_TYPE},
        "uuid": _text(device.id),
        "minor": {"int": found.minor},
        "productName": _text(found.product_name),
        "brand": _text(found.brand),
        "architecture": _text(found.architecture),
        "cudaComputeCapability": _version(found.compute_capability),
        "driverVersion": _version(found.driver_version),
        "cudaDriverVersion": _version(found.cuda_driver_version),
        "pcieBusID": _text(found.pci_bus_id),
    }
    others: Object = {
        "resource.kubernetes.io/pciBusID": _text(found.pci_bus_id),
        "resource.kubernetes.io/pcieRoot": _text(found.pcie_root),
        "resource.kubernetes.io/numaNode": {"int": device.numa},
        **{f"{_NVIDIA}/{name}": own[name] for name in _NVIDIAS},
    }
    return {name: value for name, value in (own | others).items() if value is not None}


def _capacity(device: Device) -> Object:
    """
    Return what a device has, with the amounts that a claim may request, and gets if it requests none.

    By default a share is all that a device has, as in HAMi.
    """
    memory, cores = mib_quantity(device.memory_mib), str(min(device.core_percent, _WHOLE_PERCENT))
    return {
        CORES: {
            "value": str(device.core_percent),
            "requestPolicy": {"default": cores, "validRange": {"min": "0", "max": cores, "step": "1"}},
        },
        MEMORY: {
            "value": memory,
            "requestPolicy": {"default": memory, "validRange": {"min": "1Mi", "max": memory, "step": "1Mi"}},
        },
        REPLICAS: {"value": str(device.count), "requestPolicy": {"default": "1", "validValues": ["1"]}},
    }


def _text(value: str) -> Object | None:
    return {"string": value[:_TEXT_MAX]} if value else None


def _version(text: str) -> Object | None:
    """Return *text* as a semantic version: three numbers without leading zeros. None if it is not numbers and dots."""
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts] + [0, 0]
    return {"version": ".".join(map(str, numbers[:3]))}
