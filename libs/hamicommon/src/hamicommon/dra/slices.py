"""
The ResourceSlices of Nodes: one pool for each Node, named after it.

Devices that are shared are in one slice; `partitions` writes those of MIG instances.

A Node may write slices that name itself. So a pool of another name is refused when slices are read, or one Node could
replace the devices of another.

Attributes have HAMi's names. Those that mean the same as NVIDIA's driver says (`gpu.nvidia.com`), or as Kubernetes
defines, are there under these names too, so that one CEL expression selects from several drivers.
Source: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/cmd/gpu-kubelet-plugin/deviceinfo.go
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.dra.fields import (
    count_field,
    list_field,
    memory_mib,
    object_entry,
    object_field,
    text_field,
    whole_amount,
)
from hamicommon.dra.names import (
    API_VERSION,
    CORES,
    DEVICE_TYPE,
    DRIVER,
    MEMORY,
    MEMORY_SLICE,
    NVIDIA_DOMAIN,
    PARTITION_TYPE,
    REPLICAS,
    TAINT_PREFIX,
    TOKEN_TYPE,
    device_name,
)
from hamicommon.model import Device, MigAllocation, MigPlacement, Object
from hamicommon.wire.errors import DecodeError, EncodeError, quote

DEVICES_MAX: Final = 64
"""Of one slice with taints."""
_DEVICES_READ_MAX: Final = 128
"""The API server's limit for any slice."""
_TEXT_MAX: Final = 64
_UUID_SEPARATORS: Final = ",:;"
_CLOSING_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep new shares away; `None` only informs."""
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
_DIGITS_MAX: Final = 2
"""Of the number of a memory slice."""
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


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One device as a slice lists it."""

    device: Device
    """
    With what a slice says of it; unhealthy if a taint keeps new shares away. Of a MIG instance it is the part of the
    GPU that the instance takes, one share, with the GPU's UUID.
    """
    taints: tuple[str, ...] = ()
    """The keys of taints that keep new shares away."""
    instance: MigAllocation | None = None
    """The MIG instance that it is; None for a device that is shared."""


Pool = Mapping[str, SliceDevice]
"""The devices of one pool, by name."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice of this driver."""

    name: str
    node: str
    """The Node, and the pool."""
    generation: int
    slice_count: int
    """How many slices the pool has in this generation."""
    devices: Pool
    tokens: int = 0
    """How many tokens it lists."""


def encode_devices(devices: Sequence[OfferedDevice]) -> Object:
    """
    Return what a slice with *devices* contains.

    Raises:
        EncodeError: there are more devices than one slice may have.
    """
    if len(devices) > DEVICES_MAX:
        raise EncodeError("ResourceSlice", f"would have {len(devices)} devices, and may have {DEVICES_MAX}")
    return {"devices": [encode_device(device) for device in devices]}


def encode_part(node: Mapping[str, Any], part: Object, generation: int, slice_count: int = 1) -> Object:
    """
    Return the slice of *node* that contains *part*, its devices or counters; the pool has *slice_count* slices.

    Raises:
        EncodeError: the Node has no name or UID.
    """
    metadata = node.get("metadata") or {}
    name, uid = metadata.get("name"), metadata.get("uid")
    if not name or not uid:
        raise EncodeError("Node", "has no name or UID yet, which its ResourceSlice names")
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
            "pool": {"name": name, "generation": generation, "resourceSliceCount": slice_count},
            **part,
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


def decode_slice(item: Mapping[str, Any]) -> Slice | None:
    """
    Read *item*, a ResourceSlice of the API; None if it is another driver's.

    Raises:
        DecodeError: it is none that this driver writes; the place names the slice and the field.
    """
    spec = object_field(item, "spec", "ResourceSlice")
    if spec.get("driver") != DRIVER:
        return None
    metadata = object_field(item, "metadata", "ResourceSlice")
    name = text_field(metadata, "name", "metadata")
    try:
        return _slice(spec, name)
    except DecodeError as error:
        raise error.within(f"ResourceSlice {name}") from error


def read_slices(items: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Pool], tuple[DecodeError, ...]]:
    """
    Return what *items*, ResourceSlices of all drivers, offer by pool, and what of them cannot be used.

    A slice that cannot be read is left out. `pools` says which slices count.
    """
    slices: list[Slice] = []
    problems: list[DecodeError] = []
    for item in items:
        try:
            found = decode_slice(item)
        except DecodeError as error:
            problems.append(error)
        else:
            slices += [found] if found else []
    offered, wrong = pools(slices)
    return offered, (*problems, *wrong)


def pools(slices: Iterable[Slice]) -> tuple[dict[str, Pool], tuple[DecodeError, ...]]:
    """
    Return the devices by pool, which is the Node, and name.

    Of a pool only the slices of the highest generation count. A pool with fewer slices than it announces is being
    written and is left out, and so is one that lists a device twice, because kube-scheduler uses neither.
    Source: https://github.com/kubernetes/dynamic-resource-allocation/blob/v0.37.2/structured/internal/incubating/pools_incubating.go
    """
    found: dict[str, Pool] = {}
    problems: list[DecodeError] = []
    for node, parts in _complete(slices):
        pool = {name: device for part in parts for name, device in part.devices.items()}
        if len(pool) < sum(len(part.devices) for part in parts):
            problems.append(DecodeError(f"pool {node}", "two of its ResourceSlices list the same device"))
        else:
            found[node] = pool
    return found, tuple(problems)


def token_count(slices: Iterable[Slice]) -> int:
    """Return how many tokens *slices* list, those of one Node; none while its pool is being written."""
    return sum(part.tokens for _, parts in _complete(slices) for part in parts)


def _complete(slices: Iterable[Slice]) -> Iterator[tuple[str, Sequence[Slice]]]:
    """Yield each Node with the slices of its pool that count, unless some are missing."""
    newest: dict[str, list[Slice]] = {}
    for one in slices:
        known = newest.setdefault(one.node, [one])
        if one.generation > known[0].generation:
            newest[one.node] = [one]
        elif one.generation == known[0].generation and one is not known[0]:
            known.append(one)
    for node, parts in newest.items():
        if len(parts) >= max(part.slice_count for part in parts):
            yield node, parts


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


def _slice(spec: Mapping[str, Any], name: str) -> Slice:
    pool = object_field(spec, "pool", "spec")
    node, pool_name = text_field(spec, "nodeName", "spec"), text_field(pool, "name", "spec.pool")
    if pool_name != node:
        raise DecodeError("spec.pool.name", f"is {quote(pool_name)}, and must be the Node {quote(node)}")
    entries = list_field(spec, "devices", "spec")
    if len(entries) > _DEVICES_READ_MAX:
        raise DecodeError("spec.devices", f"has {len(entries)} devices, and a slice may have {_DEVICES_READ_MAX}")
    devices: dict[str, SliceDevice] = {}
    tokens = 0
    for number, entry in enumerate(entries):
        place = f"spec.devices[{number}]"
        item = object_entry(entry, place)
        if _said(object_field(item, "attributes", place, is_optional=True), "type") == TOKEN_TYPE:
            tokens += 1
            continue  # What a token takes of devices, its Pod says.
        device = text_field(item, "name", place)
        if device in devices:
            raise DecodeError(f"{place}.name", f"{quote(device)} is listed twice")
        devices[device] = _device(item, place)
    generation = count_field(pool, "generation", "spec.pool", least=0)
    slice_count = count_field(pool, "resourceSliceCount", "spec.pool", least=1)
    return Slice(name, node, generation, slice_count, devices, tokens)


def _device(item: Mapping[str, Any], place: str) -> SliceDevice:
    attributes = object_field(item, "attributes", place)
    is_partition = _said(attributes, "type") == PARTITION_TYPE
    uuid = _uuid(attributes, "parentUUID" if is_partition else "uuid", f"{place}.attributes")
    instance = _instance(item, uuid, place) if is_partition else None
    capacity = object_field(item, "capacity", place)
    where = f"{place}.capacity"
    values = {
        name: object_field(capacity, name, where, is_optional=True).get("value") for name in (CORES, MEMORY, REPLICAS)
    }
    taints = tuple(
        text_field(taint, "key", at)
        for number, entry in enumerate(list_field(item, "taints", place))
        for at in [f"{place}.taints[{number}]"]
        for taint in [object_entry(entry, at)]
        if taint.get("effect") in _CLOSING_EFFECTS
    )
    device = Device(
        uuid,
        count=1 if is_partition else whole_amount(values, REPLICAS, where),
        memory_mib=memory_mib(values, where),
        core_percent=whole_amount(values, CORES, where),
        type=_said(attributes, "productName"),
        healthy=not taints,
    )
    return SliceDevice(device, taints, instance)


def _instance(item: Mapping[str, Any], gpu_uuid: str, place: str) -> MigAllocation:
    """Return the MIG instance that a device is; the memory slices that it consumes are its placement."""
    profile = _string(item["attributes"], "profile", f"{place}.attributes")
    where = f"{place}.consumesCounters"
    entries = [object_entry(entry, where) for entry in list_field(item, "consumesCounters", place)]
    names = [name for entry in entries for name in object_field(entry, "counters", where)]
    taken = {_memory_slice(name, where) for name in names}
    start = min(taken, default=0)
    if taken != set(range(start, start + len(taken))) or not taken:
        raise DecodeError(where, f"{quote(', '.join(names))} are no memory slices in a row")
    return MigAllocation(0, 0, gpu_uuid, profile, MigPlacement(start, len(taken)))


def _memory_slice(name: str, place: str) -> int:
    number = name.removeprefix(MEMORY_SLICE)
    if number == name or not (number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        raise DecodeError(place, f"{quote(name)} is no memory slice")
    return int(number)


def _uuid(attributes: Mapping[str, Any], name: str, place: str) -> str:
    """Return the UUID in an attribute. Raises: DecodeError: it is none that the Pod annotations can have."""
    uuid = _string(attributes, name, place)
    if any(separator in uuid for separator in _UUID_SEPARATORS):
        raise DecodeError(f"{place}.{name}", f"{quote(uuid)} has a separator of the Pod annotations in it")
    return uuid


def _string(attributes: Mapping[str, Any], name: str, place: str) -> str:
    return text_field(object_field(attributes, name, place), "string", f"{place}.{name}")


def _said(attributes: Mapping[str, Any], name: str) -> str:
    """Return an attribute that is for people, empty if there is none."""
    value = (attributes.get(name) or {}).get("string") if isinstance(attributes.get(name), dict) else None
    return value if isinstance(value, str) else ""


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
        **{f"{NVIDIA_DOMAIN}/{name}": own[name] for name in _NVIDIAS},
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
