"""
The parts of a vendor's description.

Neighbours: each module of `vendors` has one `DESCRIPTION`; `hamicommon.config` reads the sections.
Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device (one package a vendor)
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from hamicommon.model import Request
from hamicommon.wire import keys
from hamicommon.wire.go.yaml_nodes import Mapping as YamlMapping
from hamicommon.wire.go.yaml_reader import Report, key
from hamicommon.wire.quantity import parse_quantity, rounded_down

T = TypeVar("T")
RequestParser = Callable[[Mapping[str, Any]], Request | None]
"""Reads from a container's `resources` what it asks of one vendor, None for nothing."""

READ_BY_THE_PLUGIN = "the vendor's own device plugin reads it"
"""Why some keys of the device config have no effect here."""
_RESOURCE_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._/-]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class Vendor:
    """
    The names and keys of one vendor, or of one chip of a vendor that has several.

    An empty key means the vendor has no such thing.
    """

    key: str
    """How shares name the vendor (`NVIDIA`). No two vendors have the same."""
    resource_names: tuple[str, ...]
    """Extended resources that a container can ask for; the first one counts devices."""
    to_allocate_key: str
    """Pod annotation: the shares that the device plugin still has to allocate."""
    allocated_key: str
    """Pod annotation: the granted shares."""
    register_key: str = ""
    """Node annotation: the inventory; empty if the devices are counted by the Node's capacity."""
    handshake_key: str = ""
    """Node annotation: the liveness note between plugin and scheduler."""
    use_uuid_key: str = ""
    """Pod annotation: UUIDs of devices to use. Likewise `nouse`: devices to avoid, and `type`: models."""
    nouse_uuid_key: str = ""
    also_use_uuid_key: str = ""
    """Another key for the list; a device must pass both lists."""
    also_nouse_uuid_key: str = ""
    use_type_key: str = ""
    nouse_type_key: str = ""
    author_keys: tuple[str, ...] = ()
    """Further Pod annotations that a Pod's author writes."""
    lock_key: str = ""
    """Node annotation: the allocation lock."""
    lock_seconds: int = 0
    """After how many seconds a lock without owner expires; 0 if the lock names its owner."""
    memory_resource_name: str = ""
    """The resource whose `limits.` quota limits granted memory."""
    core_resource_name: str = ""
    """The resource whose `limits.` quota limits granted cores."""
    memory_factor: int = 1
    """MiB per unit of `memory_resource_name`."""
    read_memory_limit: Callable[[str | int], int] | None = None
    """Reads a quota's limit on memory as MiB, rounded down. None: the limit is a number of units."""
    grants_percent: bool = True
    """Whether a share's compute is the percentage that was asked for, not units or bits."""
    cores_of_a_device: int = 0
    """What a request with 0 cores, which means all of a device, counts against a quota."""
    amounts_before_placement: Callable[[Request], tuple[int, int]] | None = None
    """Returns the MiB and cores per device that a request counts before it has a device. None: the amounts it names."""
    parse_request: RequestParser = field(default=lambda _resources: None, compare=False)
    config: Any = field(default=None, compare=False)
    """The vendor's section of the device config, or the chip in it."""
    name: str = ""
    """The module of `hamicommon.vendors` that describes it, and of each service that has functions for it."""

    resource_set: frozenset[str] = field(init=False, compare=False, repr=False)
    """The names of its resources; a set, because every container of every Pod is compared with it."""

    def __post_init__(self) -> None:
        """Prepare what every reader needs."""
        object.__setattr__(self, "resource_set", frozenset(self.resource_names))

    @property
    def choosing_annotations(self) -> tuple[str, ...]:
        """The Pod annotations that allow or forbid devices of the vendor."""
        lists = (self.use_uuid_key, self.nouse_uuid_key, self.also_use_uuid_key, self.also_nouse_uuid_key)
        return tuple(filter(None, (*lists, self.use_type_key, self.nouse_type_key)))

    @property
    def author_annotations(self) -> tuple[str, ...]:
        """Every Pod annotation of the vendor that a Pod's author writes."""
        return (*self.choosing_annotations, *self.author_keys)

    @property
    def annotations(self) -> tuple[str, ...]:
        """Every annotation of the vendor, on Pods and Nodes."""
        written = (self.to_allocate_key, self.allocated_key, self.register_key, self.handshake_key, self.lock_key)
        return (*filter(None, written), *self.author_annotations)


@dataclass(frozen=True, slots=True)
class Section(Generic[T]):
    """A vendor's section of the device config."""

    name: str
    """Its key in the file."""
    empty: T
    """Its value if the file has no such key: no resource has a name."""
    kind: Any = None
    """Its type, if that is not the type of `empty`."""
    meaning: str = ""
    """What it is, for the documentation; empty where its keys say enough."""
    translate: Callable[[YamlMapping, Report], None] | None = None
    """Changes the forms of older versions into the present one, or reports what to write instead."""
    check: Callable[[T, Report], None] | None = None
    """Reports what is wrong between fields."""
    finish: Callable[[T], T] | None = None
    """Completes a value after it was read, such as by sorting."""


@dataclass(frozen=True, slots=True)
class Description:
    """The description of one vendor."""

    title: str
    """Its name in the documentation."""
    section: Section[Any]
    vendors: Callable[[Any], Iterable[Vendor]]
    """Returns the vendors of a section: one, one for each chip, or one each for whole and shared devices."""
    order: int = 1000
    """The vendor's place in the order of vendors. HAMi's vendors have HAMi's order; equal places are sorted by name."""


_DOMAIN_CHARACTERS = 253 - len("requests.")
_NAME_CHARACTERS = 63


def resource_name(name: str, chart: str = "") -> Any:
    """Return a field for the name of a resource: *name* is its key in the file, *chart* its value in the chart."""
    return key(name, "", check=is_resource_name, chart=chart)


def is_resource_name(text: str) -> str | None:
    """
    Return what is wrong with *text* as the name of a resource, None if it is valid.

    The kubelet checks it with `requests.` in front.
    Source: IsExtendedResourceName in
    https://github.com/kubernetes/kubernetes/blob/v1.34.1/pkg/apis/core/v1/helper/helpers.go
    """
    if text and not _RESOURCE_NAME.fullmatch(text):
        return f"{text[:40]!r} is not a resource name such as nvidia.com/gpu"
    domain, _, name = text.rpartition("/")
    if len(domain) > _DOMAIN_CHARACTERS or len(name) > _NAME_CHARACTERS:
        return (
            f"{text[:40]!r} has {len(domain)} characters before the slash and {len(name)} after it; Kubernetes takes "
            f"{_DOMAIN_CHARACTERS} and {_NAME_CHARACTERS}"
        )
    return None


class Chip(Protocol):
    """One entry of a section that lists chips."""

    @property
    def common_word(self) -> str: ...
    @property
    def resource_count_name(self) -> str: ...
    @property
    def resource_memory_name(self) -> str: ...
    @property
    def resource_core_name(self) -> str: ...


def chip_vendor(
    chip: Chip, register_key: str, memory_factor: int, parse_request: RequestParser, config: object
) -> Vendor:
    """Return one chip of a vendor with several. Its common word is its key, and a part of its annotation keys."""
    word = chip.common_word
    return Vendor(
        key=word,
        resource_names=named(chip.resource_count_name, chip.resource_memory_name, chip.resource_core_name),
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=register_key,
        handshake_key=f"hami.io/node-handshake-{word}",
        use_uuid_key=f"hami.io/use-{word}-uuid",
        nouse_uuid_key=f"hami.io/no-use-{word}-uuid",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=chip.resource_memory_name,
        core_resource_name=chip.resource_core_name,
        memory_factor=memory_factor,
        parse_request=parse_request,
        config=config,
    )


def check_words(path: str, chips: Iterable[Chip], report: Report) -> None:
    """Report chips without a common word, or with the word of another chip."""
    words: list[str] = []
    for index, chip in enumerate(chips):
        if not chip.common_word:
            report.problem(f"{path}[{index}].commonWord", "must not be empty; annotation keys contain it")
        elif chip.common_word in words:
            report.problem(f"{path}[{index}].commonWord", f"{chip.common_word!r} is already the word of another entry")
        words.append(chip.common_word)


def limit_readers(vendors: Iterable[Vendor]) -> dict[str, Callable[[str | int], int]]:
    """
    Return readers of the quota limits on the resources of *vendors*: memory as MiB, cores as numbers, rounded down.

    >>> names = {"memory_resource_name": "memory", "core_resource_name": "cores"}
    >>> readers = limit_readers([Vendor("v", ("gpu",), "", "", **names, memory_factor=256)])
    >>> {resource: read("1500m") for resource, read in readers.items()}
    {'memory': 384, 'cores': 1}
    """
    found: dict[str, Callable[[str | int], int]] = {}
    for vendor in vendors:
        in_units = partial(_units_as_mib, factor=vendor.memory_factor)
        found[vendor.memory_resource_name] = vendor.read_memory_limit or in_units
        found[vendor.core_resource_name] = rounded_down
    found.pop("", None)
    return found


def _units_as_mib(text: str | int, factor: int) -> int:
    return parse_quantity(text) * factor // 1


def named(*names: str) -> tuple[str, ...]:
    """Return the names that are configured."""
    return tuple(name for name in names if name)


def amount(resources: Mapping[str, Any], name: str) -> Any | None:
    """Return the limit on *name* in a container's `resources`, else the request, else None."""
    if not name:
        return None
    for part in ("limits", "requests"):
        amounts = resources.get(part)
        if isinstance(amounts, Mapping) and name in amounts:
            return amounts[name]
    return None
