"""
Enflame: names, keys and requests of two vendors, whole devices (GCU) and devices cut by profile (DRS).

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/enflame
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from hamicommon.model import Device, Request
from hamicommon.vendors.amounts import request_of, rounded_amount, saturated, whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, is_resource_name, named, resource_name
from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.yaml_reader import key
from hamicommon.wire.quantity import INT32_MAX, parse_quantity

GCU_KEY = "GCU"
DRS_KEY = "Enflame"
DRS_REGISTER_KEY = "enflame.com/gcu-drs-capacity"
"""Node annotation: the devices that can be cut, and the profiles."""
PROFILES, MINOR = "profiles", "minor"
"""Keys of a device's `custom`: its `Profile`s, smallest first, and its minor number."""
_MIB_PER_GIB = 1024
GCU_MEMORY = 100
"""The memory of a whole device, in place of MiB, because it is not reported."""


@dataclass(frozen=True, slots=True)
class EnflameConfig:
    """The `enflame` section: whole devices (gcu) and shared ones (drs)."""

    resource_gcu_name: str = resource_name("resourceNameGCU", "enflame.com/gcu")
    resource_drs_name: str = resource_name("resourceNameDRSGCU", "enflame.com/drs-gcu")
    resource_memory_name: str = resource_name("resourceNameGCUMemory", "enflame.com/gcu-memory")
    resource_core_name: str = resource_name("resourceNameGCUCore", "enflame.com/gcu-core")
    legacy_resource_vgcu_name: str = resource_name("resourceNameVGCU")
    """Before v2.10; names the shared devices where resourceNameDRSGCU is absent."""
    legacy_resource_vgcu_percentage_name: str = key(
        "resourceNameVGCUPercentage", "", check=is_resource_name, without_effect="2.10 asks by resourceNameGCUCore"
    )


@dataclass(frozen=True, slots=True)
class Profile:
    """A size to which a device can be cut."""

    name: str
    """As `2g.16gb`."""
    id: str
    size: int
    """Parts of the device it takes."""
    memory_gib: int
    core_percent: int

    @property
    def memory_mib(self) -> int:
        """Its memory."""
        return self.memory_gib * _MIB_PER_GIB


def gcu_vendor(config: EnflameConfig) -> Vendor:
    """Return the names and keys of whole devices, counted by the Node's capacity, without lists and lock."""
    return Vendor(
        key=GCU_KEY,
        resource_names=named(config.resource_gcu_name),
        to_allocate_key="hami.io/enflame-gcu-devices-to-allocate",
        allocated_key="hami.io/enflame-gcu-devices-allocated",
        parse_request=partial(parse_gcu_request, config=config),
        config=config,
    )


def drs_vendor(config: EnflameConfig) -> Vendor:
    """Return the names and keys of devices cut by profile."""
    return Vendor(
        key=DRS_KEY,
        resource_names=named(_drs_name(config), config.resource_memory_name, config.resource_core_name),
        to_allocate_key="",
        allocated_key="hami.io/enflame-vgpu-devices-allocated",
        register_key=DRS_REGISTER_KEY,
        use_uuid_key="enflame.com/use-gpuuuid",
        nouse_uuid_key="enflame.com/nouse-gpuuuid",
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        read_memory_limit=memory_mib,
        amounts_before_placement=amounts_before_placement,
        parse_request=partial(parse_drs_request, config=config),
        config=config,
    )


def parse_gcu_request(resources: Mapping[str, Any], config: EnflameConfig) -> Request | None:
    """
    Return how many whole devices a container with these `resources` asks for, None if none.

    >>> parse_gcu_request({"limits": {"gcu": "2"}}, EnflameConfig(resource_gcu_name="gcu"))
    Request(vendor='GCU', count=2, memory_mib=100, memory_percent=None, core_percent=100, profile_size=0)
    """
    return request_of(GCU_KEY, saturated(whole_amount(resources, config.resource_gcu_name)), GCU_MEMORY, 100)


def parse_drs_request(resources: Mapping[str, Any], config: EnflameConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of devices cut by profile, None if nothing.

    A number of parts selects the profile (`profile_size`). Otherwise memory and cores select it. The memory is MiB or
    GiB, which depends on the profiles of the Node: `memory_mib` is the number as written, 0 for any.

    >>> config = EnflameConfig("", "drs", "memory", "core")
    >>> parse_drs_request({"limits": {"drs": "3"}}, config)
    Request(vendor='Enflame', count=1, memory_mib=0, memory_percent=None, core_percent=0, profile_size=3)
    >>> parse_drs_request({"limits": {"memory": "16", "core": "50"}}, config)
    Request(vendor='Enflame', count=1, memory_mib=16, memory_percent=None, core_percent=50, profile_size=0)
    """
    size = whole_amount(resources, _drs_name(config))
    if size is not None and size > 0:
        return Request(DRS_KEY, 1, 0, None, 0, size) if size <= INT32_MAX else None
    memory = rounded_amount(resources, config.resource_memory_name)
    cores = rounded_amount(resources, config.resource_core_name)
    if (memory is None and cores is None) or max(memory or 0, cores or 0) > INT32_MAX:
        return None
    return Request(DRS_KEY, 1, max(memory or 0, 0), None, max(cores or 0, 0))


def _drs_name(config: EnflameConfig) -> str:
    return config.resource_drs_name or config.legacy_resource_vgcu_name


@dataclass(frozen=True, slots=True)
class _Registered:
    index: str = ""
    minor: str = ""
    capacity: Any = None


@dataclass(frozen=True, slots=True)
class _Capacity:
    devices: tuple[_Registered | None, ...] = ()
    profiles: Mapping[str, str] = field(default_factory=dict)


_CAPACITY: Final = json.struct(
    _Capacity(),
    {
        "devices": (
            "devices",
            json.array(
                json.struct(
                    _Registered(),
                    {
                        "index": ("index", json.string),
                        "minor": ("minor", json.string),
                        "capacity": ("capacity", json.anything),
                    },
                )
            ),
        ),
        "profiles": ("profiles", json.mapping(json.string)),
    },
)


def decode_drs_devices(text: str, node: str) -> tuple[Device, ...]:
    """
    Return the devices of `DRS_REGISTER_KEY` on Node *node*. Each has the memory of the largest profile.

    >>> text = '{"devices":[{"index":"0","minor":"10","capacity":6}],"profiles":{"1g.8gb":"0","6g.48gb":"3"}}'
    >>> [device] = decode_drs_devices(text, "n1")
    >>> device.id, device.count, device.memory_mib, device.custom["minor"]
    ('n1-enflame-drs-0', 6, 49152, '10')
    >>> [(profile.name, profile.core_percent) for profile in device.custom["profiles"]]
    [('1g.8gb', 17), ('6g.48gb', 100)]

    Raises: DecodeError when the text is not that object, no profile has a size, or a device no capacity.
    """
    found: _Capacity = json.decode(text, _CAPACITY)
    sizes = {name: _size(name) for name in found.profiles}
    largest = max((size for size, _ in sizes.values()), default=0)
    if largest <= 0:
        raise DecodeError("field profiles", "none has a size, such as 2g.16gb")
    memory_gib = max(memory for _, memory in sizes.values())
    profiles = sorted(
        (
            Profile(name, found.profiles[name], size, memory, -(-size * 100 // largest))
            for name, (size, memory) in sizes.items()
            if size > 0 and memory > 0
        ),
        key=lambda profile: (profile.size, profile.memory_gib, profile.name),
    )
    return tuple(
        _device(device, place, node, (memory_gib or largest) * _MIB_PER_GIB, tuple(profiles))
        for place, device in enumerate(found.devices)
    )


def memory_mib(text: str | int) -> int:
    """
    Return the MiB of an amount of memory without knowledge of profiles: from 1024 on it is MiB, below GiB.

    `profile_for` uses another limit between the units. Between both limits, a request counts more than it takes, never
    less.

    >>> [memory_mib(text) for text in ("16", "1023", "1024", "8192", "500m")]
    [16384, 1047552, 1024, 8192, 512]

    Raises:
        QuantityError: *text* is no quantity.
    """
    amount = parse_quantity(text)
    return (amount * _MIB_PER_GIB if amount < _MIB_PER_GIB else amount) // 1


def amounts_before_placement(request: Request) -> tuple[int, int]:
    """
    Return the MiB and the percentage of cores that *request* counts before its profile is known.

    Every profile has at least 1 GiB and some cores.

    >>> by_memory, by_size = Request(DRS_KEY, 1, 10, None, 0), Request(DRS_KEY, 1, 0, None, 0, profile_size=2)
    >>> amounts_before_placement(by_memory), amounts_before_placement(by_size)
    ((10240, 1), (1024, 1))
    """
    return max(memory_mib(request.memory_mib), _MIB_PER_GIB), max(request.held_core_percent, 1)


def profile_for(request: Request, profiles: Iterable[Profile]) -> Profile | None:
    """
    Return the smallest of *profiles*, smallest first, that satisfies *request*, None if there is none.

    An amount of memory above twice the largest profile's GiB is in MiB.

    >>> small, large = Profile("1g.12gb", "0", 1, 12, 50), Profile("2g.24gb", "1", 2, 24, 100)
    >>> [profile_for(Request(DRS_KEY, 1, amount, None, 0), (small, large)).name for amount in (10, 13, 49, 13000)]
    ['1g.12gb', '2g.24gb', '1g.12gb', '2g.24gb']
    >>> profile_for(Request(DRS_KEY, 1, 0, None, 0, profile_size=3), (small, large)) is None
    True
    """
    known = list(profiles)
    if request.profile_size:
        return next((profile for profile in known if profile.size == request.profile_size), None)
    memory_gib = request.memory_mib
    if known and memory_gib > 2 * known[-1].memory_gib:
        memory_gib = -(-memory_gib // _MIB_PER_GIB)
    enough = (p for p in known if p.memory_gib >= memory_gib and p.core_percent >= request.core_percent)
    return next(enough, None)


def _size(name: str) -> tuple[int, int]:
    """Return the parts and the GiB in a profile's *name*, 0 for a part that cannot be read."""
    parts = name.strip().lower().split(".")
    size = parts[0].strip().removesuffix("g")
    memory = parts[1].strip().removesuffix("gb") if len(parts) > 1 else ""
    if not (size.isdecimal() and len(parts) > 1):
        return 0, 0
    return int(size[:9]), int(memory[:6]) if memory.isdecimal() else 0


def _device(found: _Registered | None, place: int, node: str, memory_mib: int, profiles: tuple[Profile, ...]) -> Device:
    index = int(found.index[:9]) if found and found.index.isdecimal() else place
    capacity = found.capacity if found else None
    if isinstance(capacity, str) and capacity.strip().isdecimal():
        capacity = int(capacity.strip()[:10])
    if isinstance(capacity, bool) or not isinstance(capacity, int | float) or not 0 < capacity <= INT32_MAX:
        raise DecodeError(f"device {place}, field capacity", f"{quote(str(capacity))} is not a number above 0")
    return Device(
        id=f"{node}-enflame-drs-{index}",
        index=index,
        count=int(capacity),
        memory_mib=min(memory_mib, INT32_MAX),
        core_percent=100,
        type=DRS_KEY,
        custom={MINOR: (found.minor.strip() if found else "") or str(index), PROFILES: profiles},
    )


def _finish(config: EnflameConfig) -> EnflameConfig:
    """Remove the old name of the shared devices if they have the new one."""
    return replace(config, legacy_resource_vgcu_name="") if config.resource_drs_name else config


SECTION: Final = Section("enflame", EnflameConfig(), finish=_finish)
DESCRIPTION: Final = Description("Enflame", SECTION, lambda config: (gcu_vendor(config), drs_vendor(config)), order=8)
